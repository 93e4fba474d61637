"""The maintenance of the index, on a data directory with synthetic vectors."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from encoder.alignment.space import MIN_DOCUMENTS, MIN_SAMPLE, neutral_space
from encoder.blocks import Receipt
from encoder.checkpoint import load_checkpoint, vector_space
from index.alignment.alignment_index import SpaceInUse
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.search.calibrate import DAMAGED, TOO_FEW, LiveScoring, open_scoring
from index.search.corpus_calibration import CALIBRATION_FILE, CorpusCalibration
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument
from index.vectors.lists import ONE_LIST_BELOW
from service.maintenance import PUBLISH_FROM, Maintenance
from service.metrics import Metrics
from service.settings import Settings
from tests.kit.waiting import wait_until

DIMENSION = 48  # so many that random vectors have neighbours in every list
BLOCKS = MIN_SAMPLE // MIN_DOCUMENTS  # of a document: so many that a space can be fitted
Make = Callable[..., Maintenance]


@pytest.fixture
def data(tmp_path: Path, tiny_checkpoint: Path) -> Iterator[DataDirectory]:
    fingerprint = vector_space(load_checkpoint(tiny_checkpoint)).fingerprint
    opened = open_data_directory(tmp_path / "data", fingerprint=fingerprint, dimension=DIMENSION)
    yield opened
    opened.close()


@pytest.fixture
def soon_lists(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let an index of so many vectors have lists, a fifth of what it takes elsewhere."""
    monkeypatch.setattr("index.vectors.lists.ONE_LIST_BELOW", 1_000)
    return 1_000


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def of_data(metrics: Metrics, tiny_checkpoint: Path) -> Callable[..., Maintenance]:
    """Return a maker of the maintenance of a data directory, with changed settings."""
    checkpoint = load_checkpoint(tiny_checkpoint)

    def make(data: DataDirectory, **changed: float) -> Maintenance:
        scoring = LiveScoring(checkpoint, data)
        return Maintenance(data, scoring, metrics.of("default"), Settings(**changed))

    return make


@pytest.fixture
def make(data: DataDirectory, of_data: Callable[..., Maintenance]) -> Iterator[Make]:
    made: list[Maintenance] = []

    def make(**changed: float) -> Maintenance:
        made.append(of_data(data, **{"target_recall": 0.3, **changed}))
        return made[-1]

    yield make
    for item in made:
        item.worker.close()


def put(data: DataDirectory, first: int, count: int, text: str = "") -> None:
    vectors = np.random.default_rng(first).normal(size=(count, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    receipt = Receipt(1, 1, 1, 0, 1)
    documents = [Document(f"d{first + n}", f"d{first + n} {text}") for n in range(count)]
    pairs = zip(documents, vectors, strict=True)
    data.index.apply(data.store.put([EncodedDocument(item, row, receipt) for item, row in pairs]))


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(
        f"longmatch_{name}", {"collection": "default", **labels}
    )


def test_a_collection_that_grew_gets_lists(
    make: Make, data: DataDirectory, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    maintenance = make()
    maintenance.work()
    assert value(metrics, "index_retrainings_total", outcome="swapped") == 0
    assert value(metrics, "recall_at_10", source="shadow") == 1.0  # one list is exact
    put(data, 0, ONE_LIST_BELOW)
    maintenance.work()
    assert data.index.nlist == 128
    assert value(metrics, "index_retrainings_total", outcome="swapped") == 1
    assert value(metrics, "index_lists") == 128
    assert value(metrics, "nprobe") == data.index.manifest.nprobe
    assert value(metrics, "index_generation") == data.index.manifest.generation == 2
    assert 0.3 <= value(metrics, "recall_at_10", source="held_out") < 1.0
    assert value(metrics, "index_changed_ratio", kind="added") == 0.0
    assert 1.0 < value(metrics, "index_list_imbalance") < 3.0
    assert value(metrics, "index_empty_lists_ratio") < 0.4
    assert value(metrics, "index_unpublished_changes") == 0
    assert "retraining the index: too few or too many lists" in caplog.text
    maintenance.work()
    assert data.index.manifest.generation == 2  # nothing to do


def test_what_is_refused_is_reported_and_not_tried_again_at_once(
    make: Make,
    data: DataDirectory,
    metrics: Metrics,
    soon_lists: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(data, 0, soon_lists)
    maintenance = make(target_recall=1.0)
    for _ in range(3):
        maintenance.work()
    assert value(metrics, "index_retrainings_total", outcome="refused") == 1
    assert "the new index generation was rejected" in caplog.text
    assert data.index.nlist == 1
    assert value(metrics, "recall_at_10", source="held_out") < 1.0
    assert value(metrics, "recall_at_10", source="shadow") == 1.0
    assert data.index.unpublished() == 0  # published all the same


def test_changes_are_published_before_a_restart_would_feel_them(
    make: Make, data: DataDirectory, metrics: Metrics
) -> None:
    maintenance = make()
    put(data, 0, PUBLISH_FROM - 1)
    maintenance.work()
    assert data.index.manifest.generation == 1
    assert value(metrics, "index_unpublished_changes") == PUBLISH_FROM - 1
    put(data, PUBLISH_FROM, 1)
    maintenance.work()
    assert data.index.manifest.generation == 2
    assert value(metrics, "index_unpublished_changes") == 0


def test_the_thread_works_and_ends(make: Make, data: DataDirectory, soon_lists: int) -> None:
    put(data, 0, soon_lists)
    before = set(threading.enumerate())
    maintenance = make(maintenance_seconds=0.01)
    maintenance.worker.start()
    wait_until(lambda: data.index.nlist > 1)
    thread = maintenance.worker.thread
    assert thread is not None
    if sys.platform == "linux":  # elsewhere a thread has the priority of its process
        own = os.getpriority(os.PRIO_PROCESS, os.getpid())
        assert os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) > own
    maintenance.worker.close()
    assert set(threading.enumerate()) <= before


def test_a_failure_is_logged_and_the_other_work_is_done(
    make: Make,
    data: DataDirectory,
    metrics: Metrics,
    soon_lists: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(data, 0, soon_lists)
    (data.path / "vectors.faiss").unlink()
    (data.path / "vectors.faiss").mkdir()
    make().work()
    assert value(metrics, "index_retrainings_total", outcome="failed") == 1
    assert "no snapshot could be published" in caplog.text
    assert value(metrics, "family_documents") == 0
    assert len(data.index) == soon_lists


def test_families_of_what_was_stored_without_them_are_found(
    tmp_path: Path, metrics: Metrics, of_data: Make
) -> None:
    for find in (False, True):
        data = open_data_directory(
            tmp_path / "data", fingerprint="a" * 64, dimension=DIMENSION, find_families=find
        )
        if not find:
            put(data, 0, 3)
            vector = np.eye(1, DIMENSION, dtype=np.float32)[0]
            copy = Document("copy", "d1 ")
            data.store.put([EncodedDocument(copy, vector, Receipt(1, 1, 1, 0, 1))])
        of_data(data).work()
        assert data.store.families.pending() == (0 if find else 4)
        if find:
            assert data.store.families.of_ids(["d0", "d1", "d2", "copy"]).keys() == {"d1", "copy"}
            assert value(metrics, "family_documents") == 2
        data.close()


def test_the_titles_of_later_documents_are_found(make: Make, data: DataDirectory) -> None:
    maintenance = make()
    vector = np.eye(1, DIMENSION, dtype=np.float32)[0]
    for document in (
        Document("battle", "the fight was part of the great war", "A battle"),
        Document("river", "water all the way", "A river"),
        Document("war", "it was long", "Great War"),
    ):
        data.store.put([EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1))])
    named = data.store.lexical.read("unheard", title="Great War")
    assert len(data.store.lexical.search(named, 10).vector_ids) == 1
    maintenance.work()
    named = data.store.lexical.read("unheard", title="Great War")
    assert len(data.store.lexical.search(named, 10).vector_ids) == 2
    changes = data.store.lexical.snapshot().changes
    maintenance.work()
    assert data.store.lexical.snapshot().changes == changes
    assert data.store.lexical.changes_since_title_refresh() == 0


def test_words_that_a_start_left_are_counted_at_once(
    make: Make, data: DataDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.followers.AT_OPENING", 2)
    put(data, 0, 3)
    data.store.lexical.rebuild()
    assert data.store.counts_words
    maintenance = make(maintenance_seconds=3600.0)
    maintenance.start()
    wait_until(lambda: not data.store.counts_words)
    maintenance.worker.close()
    assert len(data.store.lexical.snapshot().present_ids()) == 3


def test_a_collection_is_measured_as_it_grows(make: Make, data: DataDirectory) -> None:
    maintenance = make()
    scoring = maintenance._scoring

    def measured(first: int, documents: int) -> CorpusCalibration | None:
        put(data, first, documents - first, "of random words")
        maintenance.work()
        assert scoring.present.corpus == (open_scoring(scoring._checkpoint, data.path).corpus)
        return scoring.present.corpus

    general = scoring.present.rule
    assert measured(0, 99) is None
    assert scoring.present.unmeasured == TOO_FEW
    known = measured(99, 100)
    assert known is not None
    assert known.documents == 100
    assert scoring.present.unmeasured is None
    assert scoring.present.rule == known.rule != general
    assert measured(100, 150) == known  # it has not grown by more than half
    grown = measured(150, 151)
    assert grown is not None
    assert grown.documents == 151
    (data.path / CALIBRATION_FILE).write_text("{}")
    again = make()  # as after a restart
    assert again._scoring.present.rule == general
    assert again._scoring.present.unmeasured == DAMAGED
    again.work()
    assert again._scoring.present.corpus == grown


def put_blocks(data: DataDirectory, first: int, count: int) -> None:
    """Put documents whose blocks are around their vectors."""
    random = np.random.default_rng(first)
    vectors = random.normal(size=(count, DIMENSION)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    entries = []
    for number, vector in enumerate(vectors, first):
        rows = vector + random.normal(size=(BLOCKS, DIMENSION)).astype(np.float32)
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        blocks = BlockVectors(np.zeros((BLOCKS, 2), dtype=np.int64), unit)
        document = Document(f"b{number}", f"b{number}")
        entries.append(EncodedDocument(document, vector, Receipt(1, 1, BLOCKS, 0, 1), blocks))
    data.index.apply(data.store.put(entries))


def test_the_alignment_is_fitted_to_a_collection_that_grew(make: Make, data: DataDirectory) -> None:
    alignment = data.store.alignment
    maintenance = make()

    def used() -> SpaceInUse:
        maintenance.work()
        assert alignment.pending() == 0
        space = alignment.space()
        assert space is not None
        return space

    alignment.start_with(neutral_space(DIMENSION))
    put_blocks(data, 0, MIN_DOCUMENTS - 1)
    assert len(used().space.background) == 0  # there are too few documents
    put_blocks(data, MIN_DOCUMENTS - 1, 1)
    fitted = used()
    assert len(fitted.space.background) > 0
    assert alignment.drift() == 0
    put_blocks(data, MIN_DOCUMENTS, MIN_DOCUMENTS // 2)
    assert used().space_id == fitted.space_id  # it has not changed by more than half
    put_blocks(data, 2 * MIN_DOCUMENTS, 1)
    maintenance.worker.stop()
    assert used().space_id == fitted.space_id
    again = make()
    again.work()
    new = alignment.space()
    assert new is not None
    assert new.space_id != fitted.space_id
    assert (alignment.pending(), alignment.drift()) == (0, 0)
