"""What every engine does: the local one, and Qdrant by its core and by its client alone.

LONGMATCH_TEST_QDRANT=http://HOST:6333 adds a server, in which collections are made and dropped.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from qdrant_client import QdrantClient, models

import index.engine.qdrant.engine
from benchmarks.edge_client import edge_client
from encoder.alignment.space import AlignmentSpace, Whitening, neutral_space
from index.alignment.spaces import insert_space
from index.build import publish
from index.directory.data_directory import DataDirectory, open_data_directory
from index.engine.port import EncodedQuery
from index.engine.qdrant.engine import Generation, QdrantEngine, connect
from index.engine.qdrant.filters import condition_of, only, payload_values
from index.engine.qdrant.generation import MANIFEST
from index.errors import EngineError
from index.id_set import IdSet
from index.progress import SilentProgress
from index.search.records import AlignmentOptions, Bounds, Hit, Mode, SearchOptions
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.filters import And, Bound, Filter, Not, OneOf, Range, matches
from index.store.records import EncodedDocument
from tests.index.search.plane import MODES, answer, entry, names, stored_query
from tests.kit.filter_cases import FILTERS, METADATA
from tests.kit.qdrant_server import holds_the_store, run_qdrant
from tests.kit.small_disk import SmallDisk
from tests.kit.tiers import Tier

# Of the client, where it is the engine itself, and of a key that is sent without TLS.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Payload indexes have no effect:UserWarning"),
    pytest.mark.filterwarnings("ignore:Local mode performs exact:UserWarning"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure:UserWarning"),
]

SERVER = os.environ.get("LONGMATCH_TEST_QDRANT")
QDRANTS = ["client", "core", *(["server"] if SERVER else [])]
DIMENSION, DOCUMENTS = 8, 300
WORDS = "heron marsh reed bolt nut motor court judge appeal zinc tin lead".split()  # noqa: SIM905
YEAR_2004: Filter = And((Range("/year", Bound(2004, True), None), Not(OneOf("/even", (True,)))))
SELECTIONS: dict[str, dict[str, Any]] = {
    "all": {},
    "filter": {"where": YEAR_2004},
    "text range": {"where": Range("/name", Bound("d2", True), None)},
    "exclude": {"where": YEAR_2004, "exclude": ("d5", "d7")},
    "collapse": {"collapse": True},
    "no alignment": {"alignment": None},
    "bounds": {"bounds": Bounds(min_score=0.3)},
}


def document(number: int, version: int = 0, **metadata: object) -> EncodedDocument:
    """Return a document whose words, vector and blocks follow from its number and version."""
    random = np.random.default_rng([number, version])
    vector, *rows = (row / np.linalg.norm(row) for row in random.normal(size=(5, DIMENSION)))
    blocks = np.stack(rows).astype(np.float32)
    words = random.choice(WORDS, 12, p=np.arange(12, 0, -1) / 78).tolist()
    text = " ".join([*words, f"w{number}v{version}", f"w{number // 3}"])
    given = {"year": 2000 + number % 8, "even": number % 2 == 0, "name": f"d{number}", **metadata}
    kept = BlockVectors(np.zeros((4, 2), dtype=np.int64), blocks)
    unit = vector.astype(np.float32)
    return entry(f"d{number}", text, unit, kept if number % 10 else None, given)


def whitening(seed: int) -> AlignmentSpace:
    """Return a space that whitens document vectors."""
    rows = np.random.default_rng(seed).random((DIMENSION + 1, DIMENSION), np.float32)
    return replace(neutral_space(DIMENSION), documents=Whitening(rows[0], rows[1:]))


def query(number: int) -> EncodedQuery:
    found = document(1_000 + number)
    assert found.blocks is not None or number % 10 == 0
    return EncodedQuery(found.document.text, found.vector, blocks=found.blocks)


@dataclass(frozen=True, slots=True)
class Opened:
    """A data directory, and how to make another engine of the same kind over its server.

    `local` is the same one with its own engine.
    """

    data: DataDirectory
    local: DataDirectory
    again: Callable[[], QdrantEngine]

    @property
    def engine(self) -> QdrantEngine:
        return cast(QdrantEngine, self.data.engine)

    def put(self, *documents: EncodedDocument) -> None:
        self.data.engine.apply(self.data.store.put(list(documents)))

    def delete(self, *ids: str) -> None:
        self.data.engine.apply(self.data.store.delete(list(ids)))

    def find(self, number: int, mode: Mode = "hybrid", k: int = 10, **options: Any) -> list[Hit]:
        found = answer(self.data, query(number), SearchOptions(top_k=k, mode=mode, **options))
        return list(found.hits)


def open_kind(kind: str, folder: Path, number: int = DOCUMENTS) -> Iterator[Opened]:
    local = open_data_directory(
        folder / "data", fingerprint="a" * 64, dimension=DIMENSION, alignment=whitening(1)
    )
    if number:
        local.index.apply(local.store.put([document(n) for n in range(number)]))
    client = QdrantClient(":memory:") if kind == "client" else edge_client(folder / "core")
    elsewhere = kind != "local"
    given: Any = {"fingerprint": "a" * 64, "dimension": DIMENSION, "searched_elsewhere": elsewhere}
    store = DocumentStore(local.store.path, **given) if elsewhere else local.store

    def again() -> QdrantEngine:
        return connect(store, SERVER) if kind == "server" else QdrantEngine(store, client, kind)

    engine = again() if elsewhere else local.engine
    engine.catch_up()
    yield Opened(replace(local, store=store, engine=engine), local, again)
    if isinstance(engine, QdrantEngine):
        used = again().client
        for found in used.get_collections().collections:
            if found.name.startswith(engine.alias):
                used.delete_collection(found.name)
        used.close()
    store.close()
    local.close()


@pytest.fixture(scope="module", params=QDRANTS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    yield from open_kind(request.param, tmp_path_factory.mktemp("loaded"))


@pytest.fixture(params=["local", *QDRANTS])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    yield from open_kind(request.param, tmp_path, 30)


@pytest.fixture(params=QDRANTS)
def qdrant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    yield from open_kind(request.param, tmp_path, 30)


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("mode", MODES)
def test_answers_are_those_of_the_local_engine(
    loaded: Opened, mode: Mode, selection: str, tier: Tier
) -> None:
    data, local = loaded.data, loaded.local
    aligned = {"alignment": AlignmentOptions(budget_seconds=math.inf)}  # on any machine
    options = SearchOptions(top_k=10, mode=mode, **(aligned | SELECTIONS[selection]))
    for number in range(5 if tier.sweep else 2):
        stored = stored_query(data, f"d{number}", document(number).vector)
        for asked in (query(number), replace(stored, blocks=None)):
            expected = answer(local, asked, options).hits
            found = answer(data, asked, options).hits
            assert scores(found) == pytest.approx(scores(expected), abs=1e-3)
            by_id = {hit.id: hit for hit in expected}
            shared = [hit for hit in found if hit.id in by_id]
            assert len(shared) >= len(expected) - 1  # another one of a score that is nearly equal
            for hit in shared:
                assert channels(hit) == pytest.approx(channels(by_id[hit.id]), abs=1e-3)
                assert {t.term for t in hit.terms} == {t.term for t in by_id[hit.id].terms}


def test_a_selection_is_searched_within_a_filter(loaded: Opened) -> None:
    ids = loaded.data.store.log.added_after(0)[1]  # as those that a standing query looks at
    for vector_id in ids[::10].tolist():
        searching = loaded.data.engine.open(query(0), {}, Not(OneOf("/year", (1,))))
        found = searching.search(["vector"], 1, IdSet(vector_id + 1, np.array([vector_id])))
        assert found.vector_ids.tolist() == [vector_id]


def scores(hits: tuple[Hit, ...]) -> list[float]:
    return [hit.score for hit in hits]


def channels(hit: Hit) -> list[float]:
    return [hit.vector_score, hit.alignment_score or 0.0, hit.lexical_score or 0.0]


def assert_compares_as_the_store(opened: Opened) -> None:
    store, vector = opened.data.store, query(1).vector
    ids, vectors = store.compared(store.log.added_after(0)[1])
    found = opened.data.engine.open(query(1), {}).score(("vector",), ids)
    expected = vectors @ store.alignment.whiten(vector[np.newaxis])[0]
    assert np.abs(expected - vectors @ vector).max() > 0.1
    np.testing.assert_array_equal(found.vector_ids, ids)
    np.testing.assert_allclose(found.scores["vector"], expected, atol=0.02)


def test_a_space_fitted_anew_whitens_all_vectors_anew(opened: Opened) -> None:
    opened.put(document(400))
    assert_compares_as_the_store(opened)
    store = opened.data.store
    with store.connections.writing() as connection:
        insert_space(connection, whitening(2), fitted=True)
    store.alignment.refresh(SilentProgress(), fit=False)
    opened.put(document(401))
    assert len(opened.find(1)) == 10  # in the former space
    publish(opened.data, SilentProgress())
    assert_compares_as_the_store(opened)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_acknowledged_is_found(opened: Opened, mode: Mode) -> None:
    text = EncodedQuery("w777v1 heron", document(777, 1).vector)

    def best(**options: Any) -> list[str]:
        return names(answer(opened.data, text, SearchOptions(top_k=1, mode=mode, **options)).hits)

    opened.put(document(777), document(700))
    opened.put(document(777, 1))
    assert best() == ["d777"]
    assert best(where=OneOf("/colour", ("red",))) == []
    opened.put(document(777, 1, colour="red", sizes=[1, 2.5]))
    assert best(where=OneOf("/colour", ("red",))) == ["d777"]
    assert best(where=Range("/sizes", Bound(2, True), None)) == ["d777"]
    opened.delete("d777")
    assert "d777" not in best()
    assert opened.data.engine.position == opened.data.store.sequence


@pytest.mark.parametrize("forgotten", [False, True])
def test_another_server_catches_up(qdrant: Opened, forgotten: bool) -> None:
    store, other = qdrant.data.store, qdrant.again()
    store.put([document(900), document(3, 1)])
    store.delete(["d4"])
    if forgotten:  # the log, so that all revisions are compared
        store.log.forget(store.sequence)
    other.catch_up()
    assert other.position == store.sequence
    assert holds_the_store(other)
    assert qdrant.find(1)  # the first one has not heard of it
    qdrant.put(document(901))
    assert holds_the_store(other)


def test_removals_are_forgotten_in_rounds(qdrant: Opened) -> None:
    store, engine = qdrant.data.store, qdrant.engine
    for version in range(1, 6):
        qdrant.put(document(900, version))
        engine.catch_up()
    assert store.log.start == store.sequence - 1
    assert len(store.log.since(0).removed) == 1


def test_a_rebuild_switches_under_searches_and_writes(qdrant: Opened) -> None:
    before = qdrant.find(1)
    other = qdrant.again()
    other.rebuild()
    assert scores(tuple(qdrant.find(1))) == pytest.approx(scores(tuple(before)), abs=1e-3)
    qdrant.put(document(900))
    names_now = [found.name for found in other.client.get_collections().collections]
    assert len([name for name in names_now if name.startswith(other.alias)]) == 1
    assert holds_the_store(other)


@dataclass
class Paused:
    """A client that is stopped before its next write, while something else happens."""

    client: QdrantClient
    meanwhile: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "upsert" and self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return getattr(self.client, name)


def test_writes_go_on_during_a_rebuild(qdrant: Opened) -> None:
    engine, during = qdrant.engine, list[Hit]()
    qdrant.put(*(document(number) for number in range(100, 130)))  # words weigh otherwise since
    before = qdrant.find(1, "lexical")

    def search_and_write() -> None:
        during.extend(qdrant.find(1, "lexical"))
        qdrant.put(document(900), document(3, 1))

    paused = Paused(engine.client, search_and_write)
    engine.client = cast(QdrantClient, paused)
    engine.rebuild()
    assert paused.meanwhile is None
    assert during == before != qdrant.find(1, "lexical")
    assert engine.position == qdrant.data.store.sequence
    assert holds_the_store(qdrant.again())


def test_a_paused_writer_brings_nothing_back(qdrant: Opened) -> None:
    store, engine, other = qdrant.data.store, qdrant.engine, qdrant.again()
    other.catch_up()
    paused = Paused(engine.client)
    engine.client = cast(QdrantClient, paused)

    def delete_and_change() -> None:
        other.apply(store.delete(["d900"]))
        other.apply(store.put([document(901, colour="red")]))

    change = store.put([document(900), document(901, colour="blue")])
    paused.meanwhile = delete_and_change
    engine.apply(change)
    assert holds_the_store(other)
    where = OneOf("/colour", ("red",))
    assert names(tuple(qdrant.find(1, where=where))) == ["d901"]


def test_a_crash_between_two_writes_is_mended(qdrant: Opened) -> None:
    store, engine = qdrant.data.store, qdrant.engine
    removed = store.find(["d5"])["d5"].vector_id
    late = store.find(["d6"])["d6"].vector_id
    point = models.PointStruct(id=9_999, vector={}, payload={"revision": 1})

    def damage(generation: Generation) -> None:
        engine.client.delete(generation.name, models.PointIdsList(points=[removed]), wait=True)
        engine._upsert(generation.name, [point, point.model_copy(update={"id": 9_998})], 1)
        old = models.PointStruct(id=late, vector={}, payload={"revision": -1})
        engine.client.delete(generation.name, models.PointIdsList(points=[late]), wait=True)
        engine._upsert(generation.name, [old], 1)

    engine.on_generation(damage)
    assert not holds_the_store(engine)
    again = qdrant.again()
    again.catch_up()
    assert holds_the_store(again)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"dimension": 9}, "holds 9 numbers a vector"),
        ({"fingerprint": "b" * 64}, "of the encoder bbbb"),
        ({"format": 1}, "format is 1"),
        ({"unknown": 1}, "half of one"),
        (None, "half of one"),
    ],
)
def test_another_generation_is_refused(
    qdrant: Opened, changed: dict[str, Any] | None, says: str
) -> None:
    engine = qdrant.engine

    def change(generation: Generation) -> None:
        point = generation.manifest.point()
        name, wrong = generation.name, {**(point.payload or {}), **(changed or {})}
        engine.client.delete(name, models.PointIdsList(points=[MANIFEST]), wait=True)
        if changed is not None:
            engine._upsert(name, [point.model_copy(update={"payload": wrong})], 10**9)

    engine.on_generation(change)
    again = qdrant.again()
    with pytest.raises(EngineError, match=says):
        again.catch_up()
    assert says in str(again.failure)


def test_a_generation_whose_frequencies_are_gone_is_made_again(qdrant: Opened) -> None:
    engine = qdrant.engine

    def renumber(generation: Generation) -> None:
        other = replace(generation.manifest, terms=10**6)
        engine._upsert(generation.name, [other.point()], other.position)

    engine.on_generation(renumber)
    again = qdrant.again()
    data = replace(qdrant.data, engine=again)
    with pytest.raises(EngineError, match="frequencies that the store has no more"):
        answer(data, query(1), SearchOptions(top_k=1))
    again.catch_up()
    assert answer(data, query(1), SearchOptions(top_k=1)).hits


def test_what_does_not_answer_is_named(qdrant: Opened) -> None:
    engine = connect(qdrant.data.store, "qdrant://secret@127.0.0.1:9")
    with pytest.raises(EngineError, match=r"qdrant://127.0.0.1:9: .*does not answer"):
        engine.catch_up()
    with pytest.raises(EngineError, match="does not answer"):
        answer(replace(qdrant.data, engine=engine), query(1), SearchOptions(top_k=1))
    assert engine.failure is not None


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("paused", "timed out"),
        pytest.param("read-only", "403: .*write access", marks=pytest.mark.slow),
        pytest.param("full", "answer", marks=pytest.mark.slow),
    ],
)
def test_what_takes_no_writes_is_named_and_catches_up(
    fault: str,
    says: str,
    small_disk: Callable[[int], SmallDisk],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(index.engine.qdrant.engine, "_SECONDS", 2 if fault == "paused" else 30)
    disk = small_disk(200)
    given: Any = {"fingerprint": "a" * 64, "dimension": DIMENSION, "searched_elsewhere": True}
    store = DocumentStore(tmp_path / "store.sqlite3", **given)
    with closing(store), run_qdrant(disk.path / "core") as process:
        engine = connect(store, process.url)
        store.put([document(n) for n in range(5)])
        engine.catch_up()

        def write_on() -> None:
            for start in range(5, 5_000, 500):
                engine.apply(store.put([document(n) for n in range(start, start + 500)]))

        if fault == "paused":
            process.pause()
        elif fault == "full":
            disk.fill()
        else:
            process.kill()
            process.start("read-only")
        with pytest.raises(EngineError, match=says):
            write_on()
        assert engine.failure is not None
        process.kill()
        if fault == "full":
            disk.free()
        process.start()
        engine.catch_up()
        assert holds_the_store(engine)
        assert engine.failure is None


def test_a_server_too_old_is_named(qdrant: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    old = models.VersionInfo(title="", version="1.15.5")
    monkeypatch.setattr(qdrant.engine.client, "info", lambda: old, raising=False)
    with pytest.raises(EngineError, match=r"is Qdrant 1\.15\.5; 1\.16 or later"):
        qdrant.again().catch_up()


@given(st.lists(METADATA, min_size=1, max_size=4), FILTERS)
def test_filters_mean_the_same(
    core: QdrantClient, documents: list[dict[str, Any]], where: Filter
) -> None:
    condition = condition_of(where)
    if condition is None:
        return
    points = [
        models.PointStruct(id=n, vector={"document": [1.0]}, payload=payload_values(metadata))
        for n, metadata in enumerate(documents, 1)
    ]
    core.delete("c", models.PointIdsList(points=[1, 2, 3, 4]), wait=True)
    core.upsert("c", points, wait=True, update_filter=models.Filter(must=[]))
    request = models.QueryRequest(query=[1.0], using="document", filter=only(condition), limit=9)
    found = {point.id for point in core.query_batch_points("c", [request])[0].points}
    assert found == {n for n, metadata in enumerate(documents, 1) if matches(where, metadata)}


@pytest.fixture
def core(tmp_path: Path) -> Iterator[QdrantClient]:
    client = edge_client(tmp_path)
    vectors = {"document": models.VectorParams(size=1, distance=models.Distance.DOT)}
    client.create_collection("c", vectors, sparse_vectors_config={})
    yield client
    client.close()
