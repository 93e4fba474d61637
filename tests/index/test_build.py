import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.build import BATCH_DOCUMENTS, Batch, BuildReport, build_index, encode_here
from index.corpus.file_reader import FileReader
from index.corpus.folder_files import FOLDERS_FILE
from index.corpus.formats.content import FileText
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.near_duplicates.families import FAMILIES_FILE
from index.progress import SilentProgress
from index.store.records import EncodedDocument, StoredDocument
from tests.kit.corpora import write

WORDS = ["harbour", "stone", "river", "engine", "letter", "winter", "council", "forest", "number"]


class RecordingProgress:
    def __init__(self) -> None:
        self.skips: list[SkippedInput] = []
        self.steps: list[tuple[str, int | None]] = []
        self.documents = Counter[str]()  # of each step
        self.tokens = 0

    def skipped(self, skipped: SkippedInput) -> None:
        self.skips.append(skipped)

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        self.steps.append((step, total))

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        self.documents[self.steps[-1][0]] += count
        self.tokens += tokens


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint: Path) -> OnnxEncoder:
    return OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=2)


class Job:
    """The offline job over one corpus file and one data directory."""

    def __init__(self, folder: Path, encoder: OnnxEncoder) -> None:
        self.corpus = folder / "corpus.jsonl"
        self.data = folder / "data"
        self.encoder = encoder

    def write(self, *documents: dict[str, object] | str) -> None:
        lines = [d if isinstance(d, str) else json.dumps(d) for d in documents]
        self.corpus.write_text("\n".join(lines) + "\n")

    def run(self, progress: RecordingProgress | None = None) -> BuildReport:
        with self.opened() as data:
            encode = encode_here(self.encoder)
            return build_index(self.corpus, data, encode, progress or SilentProgress())

    def opened(self) -> closing[DataDirectory]:
        checkpoint = self.encoder.checkpoint
        return closing(
            open_data_directory(
                self.data, fingerprint=checkpoint.fingerprint, dimension=checkpoint.dimension
            )
        )

    def stored(self, *ids: str) -> dict[str, StoredDocument]:
        with self.opened() as data:
            return data.store.find(ids)


@pytest.fixture
def job(tmp_path: Path, encoder: OnnxEncoder) -> Job:
    return Job(tmp_path, encoder)


def text(number: int) -> str:
    return " ".join(WORDS[(number * 7 + n * n) % len(WORDS)] for n in range(40)) + f" {number}."


def test_a_corpus_becomes_searchable(job: Job) -> None:
    job.write(*({"id": f"d{n}", "title": f"T{n}", "text": text(n), "year": n} for n in range(30)))
    report = job.run()
    assert report == BuildReport(
        encoded=30, unchanged=0, skipped=0, tokens=report.tokens, tokens_left_out=0
    )
    blocks = job.encoder.read(text(7))
    vector = job.encoder.encode([blocks]).document_vectors
    with job.opened() as data:
        found = data.index.search(vector, 3)
        best_id = data.store.get(found.ids[0].tolist())[int(found.ids[0][0])].id
        assert data.index.sequence == data.store.sequence
    best = job.stored(best_id)["d7"]
    assert best.document.metadata == {"year": 7}
    assert best.receipt == blocks.receipt
    assert found.scores[0][0] == pytest.approx(1.0, abs=1e-5)


def test_reading_ahead_stores_the_same(tmp_path: Path, encoder: OnnxEncoder) -> None:
    """The way of a GPU: packed calls, the next batch tokenised meanwhile; some ids come twice."""
    precise = OnnxEncoder(encoder.checkpoint, precision="fp32", threads=2)
    packed = OnnxEncoder(encoder.checkpoint, precision="fp32", batch_tokens=512)
    documents = [{"id": f"d{n}", "text": text(n % 37)} for n in range(BATCH_DOCUMENTS + 40)]
    documents += [{"id": f"d{n}", "text": text(n + 50)} for n in range(20)]
    documents += [{"id": "empty", "text": "\u200b"}]
    stored, reports, skips = [], [], []
    for name, encoding in (("plain", precise), ("ahead", packed)):
        (tmp_path / name).mkdir()
        job = Job(tmp_path / name, encoding)
        job.write(*documents)
        progress = RecordingProgress()
        reports.append(job.run(progress))
        skips.append([skip.where for skip in progress.skips])
        found = job.stored(*(f"d{n}" for n in range(BATCH_DOCUMENTS + 40)))
        with job.opened() as data:
            ids = np.array([found[key].vector_id for key in sorted(found)], dtype=np.int64)
            order = np.argsort(ids)
            vectors = np.empty((len(ids), encoding.dimension), dtype=np.float32)
            vectors[order] = data.store.vectors(np.sort(ids))[1]
        stored.append(({key: value.document for key, value in found.items()}, vectors))
    assert stored[0][0] == stored[1][0]
    assert np.abs(stored[0][1] - stored[1][1]).max() < 1e-4
    assert reports[0] == reports[1]
    assert skips[0] == skips[1]


def test_when_reading_fails_the_batch_before_is_stored(job: Job, encoder: OnnxEncoder) -> None:
    def batches() -> Iterator[Batch]:
        yield Batch([Document("a", text(1))], 0, 0)
        raise CorpusError("the rest cannot be read")

    packed = OnnxEncoder(encoder.checkpoint, batch_tokens=512)
    done = encode_here(packed)(batches(), SilentProgress())
    _, encoded = next(done)
    assert [entry.document.id for entry in encoded] == ["a"]
    with pytest.raises(CorpusError):
        next(done)


def test_unchanged_documents_are_not_encoded_again(job: Job) -> None:
    job.write(*({"id": f"d{n}", "text": text(n)} for n in range(20)))
    job.run()
    before = job.stored(*(f"d{n}" for n in range(20)))
    job.write(
        {"id": "d0", "text": text(99)},
        {"id": "d1", "text": text(1), "title": "new title"},
        {"id": "new", "text": text(50)},
        *({"id": f"d{n}", "text": text(n)} for n in range(2, 20)),
    )
    progress = RecordingProgress()
    report = job.run(progress)
    after = job.stored("new", *(f"d{n}" for n in range(20)))
    assert (report.encoded, report.unchanged) == (2, 19)
    assert after["d0"].vector_id != before["d0"].vector_id
    assert after["d1"].vector_id == before["d1"].vector_id
    assert after["d1"].document.title == "new title"
    assert after["d5"] == before["d5"]
    assert progress.tokens == after["d0"].receipt.tokens + after["new"].receipt.tokens


def test_only_files_that_have_changed_are_read(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recording(FileReader):
        def read(self, path: Path) -> FileText:
            read.append(path.stem)
            return super().read(path)

    def run() -> tuple[str, int, list[str]]:
        read.clear()
        progress = RecordingProgress()
        report = job.run(progress)
        skipped = [skip.where for skip in progress.skips]
        return " ".join(read), report.encoded + report.unchanged, skipped

    read: list[str] = []
    monkeypatch.setattr("index.corpus.reader.FileReader", Recording)
    monkeypatch.setattr("index.corpus.folder_files._SETTLED_NS", 0)
    job.corpus = folder = tmp_path / "folder"
    for n, name in enumerate("abc"):
        write(folder / f"{name}.txt", text(n))
    write(folder / "d.txt", f"Caf\xe9. {text(7)}".encode("cp1252"))  # what is said of it is kept
    write(folder / "x.txt", b"\x00" * 99)
    skipped = ["d.txt", "x.txt"]
    assert run() == ("a b c d x", 4, skipped)
    assert run() == ("x", 4, skipped)  # a file that cannot be read has no document
    os.utime(folder / "a.txt", ns=(0, 0))
    assert run() == ("a x", 4, skipped)
    old = (folder / "b.txt").stat()
    write(folder / "b.txt", text(8)[: old.st_size].ljust(old.st_size))
    os.utime(folder / "b.txt", ns=(old.st_atime_ns, old.st_mtime_ns))  # of the same size
    with job.opened() as data:
        data.store.delete(["a.txt"])
        entry = data.store.find(["c.txt"])["c.txt"]
        vectors = data.store.vectors([entry.vector_id])[1]
        titled = replace(entry.document, title="Other")
        data.store.put([EncodedDocument(titled, vectors[0], entry.receipt)])
    assert run() == ("a b c x", 4, skipped)
    assert job.stored("c.txt")["c.txt"].document.title != "Other"
    monkeypatch.setattr("index.corpus.folder_files._reading", lambda: "other readers")
    assert run() == ("a b c d x", 4, skipped)
    assert run() == ("x", 4, skipped)
    (job.data / FOLDERS_FILE).unlink()
    assert run() == ("a b c d x", 4, skipped)


def test_nothing_new_publishes_nothing(job: Job) -> None:
    job.write({"id": "a", "text": text(1)})
    job.run()
    with job.opened() as data:
        generation = data.index.manifest.generation
    progress = RecordingProgress()
    job.run(progress)
    with job.opened() as data:
        assert data.index.manifest.generation == generation
    assert [step for step, _ in progress.steps] == ["encoding"]


def test_refused_input_is_told_once_and_the_rest_goes_on(job: Job) -> None:
    job.write(
        {"id": "a", "text": text(1)},
        "{not json",
        {"id": "b", "text": "\u200b\u0001 \u0002"},  # characters, but no token
        {"id": "a", "text": text(2)},
        {"id": "c", "text": text(3)},
    )
    progress = RecordingProgress()
    report = job.run(progress)
    assert report.skipped == len(progress.skips) == 3
    assert [r.where for r in progress.skips] == ["corpus.jsonl:2", "corpus.jsonl:4", "document b"]
    assert set(job.stored("a", "b", "c")) == {"a", "c"}
    assert progress.steps[0] == ("encoding", 5)
    assert progress.documents == {"encoding": 5, "searching texts for titles": 2}


def families_in(job: Job) -> set[frozenset[str]]:
    with job.opened() as data:
        numbers = data.store.families.of_ids(
            [document.id for document in data.store.listed("", 100)]
        )
    return {
        frozenset(name for name, family in numbers.items() if family == number)
        for number in numbers.values()
    }


def test_near_duplicates_of_unsigned_texts_are_found_at_the_end(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.write({"id": "a", "text": "some words"}, {"id": "b", "text": "some words"})
    job.run()
    monkeypatch.setattr("index.followers.AT_OPENING", 1)
    with job.opened() as data:
        (data.path / FAMILIES_FILE).unlink()
    assert families_in(job) == set()
    progress = RecordingProgress()
    job.run(progress)
    assert ("looking for near-duplicates", 2) in progress.steps
    assert families_in(job) == {frozenset({"a", "b"})}
    progress = RecordingProgress()
    job.run(progress)
    assert "looking for near-duplicates" not in dict(progress.steps)


def test_changes_of_many_small_runs_come_to_a_pass(tmp_path: Path, encoder: OnnxEncoder) -> None:
    """As long as they are few a pass is not worth it; each run counts from the last pass on."""
    job = Job(tmp_path, encoder)
    many = [{"id": f"d{n}", "title": f"T{n}", "text": text(n)} for n in range(200)]
    job.write(*many)
    job.run()
    passes = []
    for n in range(5):
        job.write({"id": f"new{n}", "title": f"N{n}", "text": text(300 + n)})
        progress = RecordingProgress()
        job.run(progress)
        passes.append("searching texts for titles" in progress.documents)
    assert passes == [False, False, True, False, False]  # the third is over a hundredth
    with job.opened() as data:
        assert data.store.lexical.changes_since_title_refresh() == 2


def test_what_a_pass_itself_writes_is_no_change(tmp_path: Path, encoder: OnnxEncoder) -> None:
    job = Job(tmp_path, encoder)
    job.write({"id": "a", "title": "A", "text": f"the great war {text(1)}"})
    job.run()
    job.write({"id": "b", "title": "Great War", "text": text(2)})
    job.run()
    with job.opened() as data:
        assert data.store.lexical.snapshot().changes == 3  # two, and one again
        assert data.store.lexical.changes_since_title_refresh() == 0
        data.store.lexical.refresh_titles(SilentProgress(), lambda: True)  # given up at once
        assert data.store.lexical.changes_since_title_refresh() == 0
