"""`longmatch reencode --only-if-better`: other vectors replace the present ones if they are better.

An untrained checkpoint with a rule that looks at vectors alone is worse than any with words.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from encoder.checkpoint import load_checkpoint
from index import build
from index import reencode as job
from index.build import encode_documents
from index.directory import data_directory
from index.document import Document
from index.reencode import REENCODING, only_reencoding
from index.search.score import read_fusion
from index.store.schema import read_space
from service.cli import reencode as command
from service.cli.tune import open_store
from service.startup import open_engine
from tests.kit.command import Answer, Run
from tests.kit.judged_corpus import BLIND, CopyTopics, use
from tests.kit.service_fixtures import MakeSettings

QUESTIONS = 60  # that 40 topics are judged with


@pytest.fixture
def data(
    copy_topics: CopyTopics,
    tmp_path: Path,
    tiny_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A data directory with feedback, which is served with a poor rule."""
    monkeypatch.setattr("service.cli.tune.OTHERS", 40)  # a third of the documents
    made = copy_topics(tmp_path, own_words=3, judged=40, others=11)
    use(made, tiny_checkpoint, BLIND)
    return made


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The ids of the documents that were encoded."""
    ids: list[str] = []

    def encode(documents: list[Document], *others: object) -> object:
        ids.extend(document.id for document in documents)
        return encode_documents(documents, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(build, "encode_documents", encode)
    return iter([ids]).__next__()


def run_test(longmatch: Run, data: Path, checkpoint: Path, *options: object) -> Answer:
    others = ("--only-if-better",)
    return longmatch("reencode", data, "--encoder", checkpoint, *others, *options)


def content(data: Path) -> dict[str, bytes]:
    """Every file of a data directory but those in which SQLite reads."""
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal", "lock"))
    }


def is_of(data: Path, checkpoint: Path) -> bool:
    return (
        read_space(data / data_directory.STORE_FILE).fingerprint
        == load_checkpoint(checkpoint).fingerprint
    )


def test_a_better_checkpoint_replaces_the_present_one(
    longmatch: Run, data: Path, tiny_terms: Path, make_settings: MakeSettings
) -> None:
    answer = run_test(longmatch, data, tiny_terms, "--json")
    assert answer.status == 0, answer.err
    report = json.loads(answer.out)
    assert (report["adopted"], report["refused"]) == (True, None)
    assert report["held_out"]["queries"] == QUESTIONS
    assert report["held_out"]["difference"]["low"] > 0
    assert report["present"]["checkpoint"] == "tiny"
    assert report["present"]["rule"]["lexical_weight"] == 0
    assert report["new"]["checkpoint"] == "tiny-terms"
    assert json.loads((data / data_directory.SHADOW_TEST_FILE).read_text()) == report
    assert not (data / data_directory.FUSION_FILE).exists()
    assert not (data / REENCODING).exists()
    assert longmatch("doctor", data, "--encoder", tiny_terms).status == 0
    engine = open_engine(make_settings(data=data, encoder=tiny_terms))
    try:
        measured = engine.default.scoring.present.corpus
        assert measured is not None
        rule = read_fusion(load_checkpoint(tiny_terms)).resolve(measured.spreads)
        assert engine.default.scoring.present.rule == rule
    finally:
        engine.opened.close()
    again = run_test(longmatch, data, tiny_terms)
    assert (again.status, "already: nothing to do" in again.err) == (2, True)


def test_what_is_not_better_changes_nothing(
    longmatch: Run, data: Path, tiny_checkpoint: Path, tiny_terms: Path
) -> None:
    use(data, tiny_checkpoint, read_fusion(load_checkpoint(tiny_terms)).resolve())
    before = content(data)
    answer = run_test(longmatch, data, tiny_terms)
    assert answer.status == 0
    assert "not moved, nothing has changed: it is not surely better" in answer.err
    assert content(data) == before


@pytest.mark.slow
def test_a_dry_run_and_a_server_keep_what_was_encoded(
    longmatch: Run,
    data: Path,
    tiny_checkpoint: Path,
    tiny_terms: Path,
    encoded: list[str],
    make_settings: MakeSettings,
) -> None:
    before = content(data)
    answer = run_test(longmatch, data, tiny_terms, "--dry-run", "--json")
    assert (answer.status, "better; nothing has changed" in answer.err) == (0, True)
    report = json.loads(answer.out)
    assert (report["adopted"], report["refused"]) == (False, None)
    assert before.items() <= content(data).items()
    assert is_of(data, tiny_checkpoint)
    (data / data_directory.SHADOW_TEST_FILE).unlink(missing_ok=True)
    running = open_engine(make_settings(data=data))
    try:
        answer = run_test(longmatch, data, tiny_terms)
        assert answer.status == 2
        assert "held-out queries" in answer.err
        assert "stop the server that has it open" in answer.err
        assert running.default.scoring.present.rule == BLIND
    finally:
        running.opened.close()
    assert not (data / data_directory.SHADOW_TEST_FILE).exists()
    assert run_test(longmatch, data, tiny_terms).status == 0
    assert len(encoded) == 120
    assert is_of(data, tiny_terms)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        pytest.param(command, "run_trial", marks=pytest.mark.slow),
        pytest.param(job, "swap_in", marks=pytest.mark.slow),
        pytest.param(shutil, "rmtree", marks=pytest.mark.slow),
    ],
)
def test_a_kill_leaves_the_old_and_the_next_run_resumes(
    longmatch: Run,
    data: Path,
    tiny_checkpoint: Path,
    tiny_terms: Path,
    encoded: list[str],
    monkeypatch: pytest.MonkeyPatch,
    place: object,
    name: str,
) -> None:
    if name == "rmtree":  # as the new vectors are not better
        use(data, tiny_checkpoint, read_fusion(load_checkpoint(tiny_terms)).resolve())

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(place, name, killed)
        assert run_test(longmatch, data, tiny_terms).status == 130
    assert is_of(data, tiny_checkpoint)
    assert longmatch("doctor", data).status == 0
    done = len(encoded)
    answer = run_test(longmatch, data, tiny_terms)
    assert answer.status == 0, answer.err
    assert is_of(data, tiny_terms) == (name != "rmtree")
    assert not (data / REENCODING).exists()
    assert len(encoded) == done == 120


def test_one_process_at_a_time_encodes(
    longmatch: Run, data: Path, tiny_terms: Path, encoded: list[str]
) -> None:
    with only_reencoding(data):
        answer = run_test(longmatch, data, tiny_terms)
    assert answer.status == 2
    assert "another `longmatch reencode` is at work" in answer.err
    assert not encoded


def test_too_little_feedback_is_refused_before_the_work(
    longmatch: Run, copy_topics: CopyTopics, tmp_path: Path, tiny_terms: Path
) -> None:
    data = copy_topics(tmp_path)
    answer = run_test(longmatch, data, tiny_terms)
    assert (answer.status, "the feedback has 0 queries" in answer.err) == (2, True)
    assert not (data / REENCODING).exists()


@pytest.mark.slow
def test_no_query_that_was_learned_from_is_asked(
    longmatch: Run, data: Path, tmp_path: Path, tiny_terms: Path
) -> None:
    checkpoint = Path(shutil.copytree(tiny_terms, tmp_path / "trained"))
    (checkpoint / "training").mkdir(exist_ok=True)
    with closing(open_store(data)) as store:
        stored = store.content_hashes([f"a{topic}" for topic in range(40)])
    record = checkpoint / "training" / "learned.txt"
    record.write_text("".join(f"{digest.hex()}\n" for digest in stored.values()))
    answer = run_test(longmatch, data, checkpoint, "--json", "--dry-run")
    assert answer.status == 0, answer.err
    report = json.loads(answer.out)
    assert report["held_out"]["queries"] == QUESTIONS - 40  # those with texts of their own
    with closing(open_store(data)) as store:  # documents that were queries, and are answers now
        stored = store.content_hashes([f"b{topic}" for topic in range(40)])
    record.write_text("".join(f"{digest.hex()}\n" for digest in stored.values()))
    answer = run_test(longmatch, data, checkpoint)
    assert answer.status == 2
    assert "data: 0 queries of the feedback with a relevant match" in answer.err
    record.write_text("what is this")
    answer = run_test(longmatch, data, checkpoint)
    assert (answer.status, "its record of training is damaged" in answer.err) == (2, True)
