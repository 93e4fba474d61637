"""`longmatch tune`: weights fitted to feedback are adopted only when they are better."""

import json
import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from index.directory import data_directory
from index.search.calibrate import LiveScoring, open_scoring
from index.search.score import CorpusFusion, LinearFusion
from index.store.schema import read_space
from service.cli import tune as command
from service.cli.opening import opened
from service.feedback.store import FeedbackStore, JudgedQuery
from service.startup import open_engine
from service.state import open_state
from tests.kit.command import Run
from tests.kit.judged_corpus import BLIND, TOPICS, CopyTopics, judge, text, use
from tests.kit.service_fixtures import MakeSettings

JUDGED = pytest.mark.parametrize("data", [40], indirect=True)


@pytest.fixture
def data(request: pytest.FixtureRequest, copy_topics: CopyTopics, tmp_path: Path) -> Path:
    """A data directory of two documents on each topic, so many of which are judged."""
    return copy_topics(tmp_path, judged=getattr(request, "param", 0))


RECIPE = """
name = "tiny"
steps = 2
documents = 12
chunk = 8
max_blocks = 8
validation_interval = 2
checkpoint_interval = 2
patience = 5
[optimiser]
document_rate = 1e-3
[[objective]]
kind = "pairs"
[[objective]]
kind = "links"
hard_negatives = 1
temperature = "learned"
"""


def used(data: Path, checkpoint: Path) -> LinearFusion:
    return open_scoring(load_checkpoint(checkpoint), data).rule


def measure(data: Path, checkpoint: Path) -> None:
    """Measure what random pairs score, as `longmatch index` does."""
    loaded = load_checkpoint(checkpoint)
    with opened(data, loaded) as directory:
        assert LiveScoring(loaded, directory).measure()


def files(data: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in data.glob("*.json")}


def chances_of(longmatch: Run, data: Path) -> dict[str, Any]:
    """Return the probability of each match of a text whose topic has no feedback."""
    query = data.parent / "query.txt"
    query.write_text(text(59, random.Random(8)))
    found = json.loads(longmatch("match", query, "--json").out)
    return {match["id"]: match["probability"] for match in found["matches"]}


@JUDGED
def test_better_weights_are_adopted_and_served(
    longmatch: Run,
    data: Path,
    tiny_checkpoint: Path,
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.cli.tune.OTHERS", 40)  # a third of the documents
    use(data, tiny_checkpoint, BLIND)
    measure(data, tiny_checkpoint)
    running = open_engine(make_settings(data=data))
    try:
        answer = longmatch("tune", data, "--json")
        assert running.default.scoring.present.rule == BLIND
    finally:
        running.opened.close()
    assert answer.status == 0, answer.err
    report = json.loads(answer.out)
    assert (report["adopted"], report["refused"]) == (True, None)
    assert report["held_out"]["difference"]["low"] > 0
    assert report["others"]["queries"] == 40
    assert report["fitted_to"] + report["held_out"]["queries"] == 60
    rule = used(data, tiny_checkpoint)
    assert rule.lexical_weight == report["new"]["lexical_weight"] > 0
    assert longmatch("doctor", data).status == 0
    engine = open_engine(make_settings(data=data))
    try:
        assert engine.default.scoring.present.rule == rule
        assert engine.default.scoring.present.corpus is not None  # measured again
        assert engine.default.scoring.present.corpus.rule == rule
        assert set(engine.default.scoring.present.of_feedback) == {"hybrid"}
    finally:
        engine.opened.close()
    (fitted,) = report["probabilities"].values()
    assert fitted["refused"] is None
    assert fitted["relevant"] == report["held_out"]["queries"]
    chances = chances_of(longmatch, data)
    assert min(chances["a59"], chances["b59"]) > 0.5
    assert max(chances[name] for name in chances.keys() - {"a59", "b59"}) < 0.5
    assert longmatch("doctor", data).status == 0


@JUDGED
def test_no_gain_and_a_dry_run_change_nothing(
    longmatch: Run, data: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.tune.OTHERS", 40)  # a third of the documents
    before, rule = files(data), used(data, tiny_checkpoint)
    answer = longmatch("tune", data)
    assert answer.status == 0
    assert "not adopted, nothing has changed: " in answer.err
    assert files(data) == before
    assert used(data, tiny_checkpoint) == rule
    use(data, tiny_checkpoint, BLIND)
    before = files(data)
    answer = longmatch("tune", data, "--dry-run")
    assert answer.status == 0
    assert "better; nothing has changed" in answer.err
    assert files(data) == before


@pytest.mark.slow
def test_a_gain_that_costs_other_queries_is_refused(
    longmatch: Run, data: Path, tiny_checkpoint: Path
) -> None:
    """Verdicts that contradict the words: the passages of other documents then lose."""
    use(data, tiny_checkpoint, LinearFusion(0.75))
    nearest = _nearest_of_others(data)
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        for topic in range(40):
            other = nearest[f"a{topic}"]
            feedback.put(JudgedQuery(document_id=f"a{topic}"), other, 3)
            feedback.put(JudgedQuery(document_id=f"a{topic}"), f"b{topic}", 0)
    answer = longmatch("tune", data, "--json")
    report = json.loads(answer.out)
    assert not report["adopted"]
    assert report["held_out"]["difference"]["low"] > 0, report
    assert "it may be worse for 120 passages of other documents" in report["refused"]


def _nearest_of_others(data: Path) -> dict[str, str]:
    """Of each document the nearest one, by its vector, that is on another topic."""
    stored = read_space(data / data_directory.STORE_FILE)
    with closing(
        data_directory.open_data_directory(
            data, fingerprint=stored.fingerprint, dimension=stored.dimension, read_only=True
        )
    ) as directory:
        found = directory.store.find([f"{side}{n}" for n in range(TOPICS) for side in "ab"])
        ids = sorted(found, key=lambda name: found[name].vector_id)
        _, vectors = directory.store.vectors([found[name].vector_id for name in ids])
    topics = np.array([int(name[1:]) for name in ids])
    cosines = np.where(topics[:, None] == topics, -1, vectors @ vectors.T)
    return {name: ids[best] for name, best in zip(ids, cosines.argmax(axis=1), strict=True)}


def test_too_little_feedback_is_refused_before_the_work(
    longmatch: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(command, "fit_rule", work)
    judge(data, 5)
    answer = longmatch("tune", data)
    assert answer.status == 2
    assert "has 7 queries with a relevant match and one that is less so" in answer.err
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE)
    answer = longmatch("lab", "train", recipe, "--feedback", data, "-o", tmp_path / "trained")
    assert answer.status == 2
    assert f"--feedback: {data}: the feedback has 7 queries" in answer.err
    assert not (tmp_path / "trained.work").exists()


def test_queries_that_cannot_be_divided_are_refused(longmatch: Run, data: Path) -> None:
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        for topic in range(30):  # a chain: each is an answer of the one before
            feedback.put(JudgedQuery(document_id=f"a{topic}"), f"a{topic + 1}", 1)
            feedback.put(JudgedQuery(document_id=f"a{topic}"), f"b{topic}", 0)
    answer = longmatch("tune", data)
    assert answer.status == 2
    assert (
        "too many queries of the feedback are of one text or answers of one another" in answer.err
    )


@pytest.mark.slow
@JUDGED
def test_a_kill_between_the_two_files_leaves_what_can_be_served(
    longmatch: Run, data: Path, tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.cli.tune.OTHERS", 40)  # a third of the documents
    use(data, tiny_checkpoint, BLIND)
    measure(data, tiny_checkpoint)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CorpusFusion, "write", killed)
    longmatch("tune", data)
    assert not (data / data_directory.CALIBRATION_FILE).exists()
    assert used(data, tiny_checkpoint) == BLIND
    assert longmatch("doctor", data).status == 0


def test_new_vectors_drop_the_weights_and_keep_the_feedback(longmatch: Run, data: Path) -> None:
    judge(data, 3)
    fingerprint = read_space(data / data_directory.STORE_FILE).fingerprint
    CorpusFusion(fingerprint, BLIND, {}).write(data)
    answer = longmatch("reencode", data, "--reading-share", 0.5)
    assert answer.status == 0, answer.err
    assert not (data / data_directory.FUSION_FILE).exists()
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        assert feedback.relevant_queries() == 4


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "fusion.json: is damaged"),
        ('{"format": 9}', "format 9 is not 3"),
        (None, "was made for vectors ffffffffffff"),
    ],
)
def test_a_wrong_file_is_found_and_deleted(
    longmatch: Run, data: Path, content: str | None, complaint: str
) -> None:
    if content is None:
        CorpusFusion("f" * 64, BLIND, {}).write(data)
    else:
        (data / data_directory.FUSION_FILE).write_text(content)
    answer = longmatch("doctor", data)
    assert (answer.status, complaint in answer.err) == (1, True)
    assert longmatch("tune", data).status == 2
    assert longmatch("doctor", data, "--repair").status == 0
    assert not (data / data_directory.FUSION_FILE).exists()


@JUDGED
@pytest.mark.slow
def test_training_learns_from_feedback(
    longmatch: Run, data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    start = Path(shutil.copytree(tiny_checkpoint, tmp_path / "start"))
    (start / "training").mkdir(exist_ok=True)
    earlier = "ab" * 32  # what the start has learned from
    (start / "training" / "learned.txt").write_text(earlier + "\n")
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE)
    command_line = ["lab", "train", recipe, "--feedback", data, "-o", tmp_path / "trained"]
    answer = longmatch(*command_line, "--precision", "fp32", "--checkpoint", start)
    assert answer.status == 0, answer.err
    counts = json.loads((tmp_path / "trained.work" / "feedback" / "counts.json").read_text())
    assert f"{counts['queries']['train']} train, {counts['queries']['valid']} valid" in answer.err
    report = json.loads((tmp_path / "trained" / "training" / "report.json").read_text())
    assert report["figure"].startswith("nDCG@10")
    assert not report["shared_documents"]
    learned = (tmp_path / "trained" / "training" / "learned.txt").read_text().split()
    assert len(learned) == counts["queries"]["train"] + 1  # each has a text of its own
    assert earlier in learned
    judge(data, 50)  # of some later verdicts nothing was learned, either
    test = ["reencode", data, "--encoder", tmp_path / "trained", "--only-if-better"]
    answer = longmatch(*test, "--dry-run", "--json")
    assert answer.status == 0, answer.err
    tested = json.loads(answer.out)
    assert tested["held_out"]["queries"] == 75 - counts["queries"]["train"]


def test_a_recipe_for_pairs_needs_both_verdicts(longmatch: Run, data: Path, tmp_path: Path) -> None:
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        for topic in range(40):
            feedback.put(JudgedQuery(document_id=f"a{topic}"), f"b{topic}", 1)
    (recipe := tmp_path / "recipe.toml").write_text(RECIPE)
    answer = longmatch("lab", "train", recipe, "--feedback", data, "-o", tmp_path / "trained")
    assert answer.status == 2
    assert "the recipe learns from pairs, and no corpus has any" in answer.err
