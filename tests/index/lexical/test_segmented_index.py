"""The words as a follower of the texts: segments, files, and the file that they belong to."""

import random
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import index.lexical.frequencies
import index.lexical.scoring
import index.lexical.segment
import index.lexical.segmented_index
from encoder.arrays import Float64, Int64
from encoder.terms.general_words import PAIR
from index.errors import LexicalIndexNotReadyError, SnapshotError, StoreError
from index.id_set import IdSet
from index.lexical.scoring import LexicalQuery
from index.lexical.segment import QueryReads
from index.lexical.snapshot import LexicalSnapshot
from index.lexical.tables import WORDS_FILE
from index.progress import SilentProgress
from index.store.document_store import DocumentStore
from tests.index.lexical.test_lexical_index import assert_says_what_the_texts_say
from tests.kit.index_fixtures import MakeEntry, OpenStore

WORDS = [f"word{n}" for n in range(60)]


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let some dozen documents fill segments of all kinds."""
    monkeypatch.setattr(index.lexical.segmented_index, "MOST_TERMS", 160)
    monkeypatch.setattr(index.lexical.segmented_index, "_MERGED_WHILE_WRITING", 120)
    monkeypatch.setattr(index.lexical.segment, "FREQUENT", 2)
    monkeypatch.setattr(index.lexical.segment, "MOST_FREQUENT", 9)
    monkeypatch.setattr(index.lexical.segment, "_ENTRIES_AT_ONCE", 13)


def text_of(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(0, 12)))


def snapshot_of(store: DocumentStore) -> LexicalSnapshot:
    return store.lexical.snapshot()


def assert_norms_are_those_of_the_frequencies(store: DocumentStore) -> None:
    snapshot = snapshot_of(store)
    idf = snapshot.idf(np.arange(snapshot.terms.last + 1))
    for segment in snapshot.segments:
        for row in np.flatnonzero(segment.present & segment.current).tolist():
            terms, counts = segment.segment.terms_of(row)
            expected = float((idf[terms] ** 2 * counts).sum())
            assert segment.squares[row] == pytest.approx(expected, rel=1e-5)
    assert snapshot.frequencies.serve(snapshot.number, snapshot.changes)


def random_query(snapshot: LexicalSnapshot, chance: random.Random) -> LexicalQuery:
    """Ask for some terms by weights that are not those of the snapshot."""
    last = snapshot.terms.last
    wanted = np.array(sorted(chance.sample(range(last + 1), min(7, last + 1))), dtype=np.int64)
    weights = np.array([chance.choice([0.25, 0.5, 1.0]) for _ in wanted], dtype=np.float32)
    weights /= max(float(np.linalg.norm(weights)), 1e-12)
    order = np.argsort(-weights, kind="stable")
    return LexicalQuery(
        wanted[order],
        weights[order],
        snapshot.terms.frequencies[wanted][order].astype(np.int64),
        snapshot.terms.levels[wanted][order] == PAIR,
        snapshot.idf(wanted)[order],
    )


def slow_scores(snapshot: LexicalSnapshot, query: LexicalQuery, vector_ids: Int64) -> Float64:
    """Compute the cosines term by term."""
    idf = snapshot.idf(np.arange(snapshot.terms.last + 1)).astype(np.float64)
    wanted = np.zeros(len(idf))
    wanted[query.term_ids] = query.weights
    scores = []
    for vector_id in vector_ids.tolist():
        terms, counts = snapshot.terms_of(vector_id)
        weights = np.sqrt(counts) * idf[terms]
        norm = max(float(np.linalg.norm(weights)), 1e-12)
        scores.append(min(float(weights @ wanted[terms]) / norm, 1.0))
    return np.array(scores)


def assert_scores_as_the_slow_path_does(store: DocumentStore, chance: random.Random) -> None:
    snapshot = snapshot_of(store)
    ids = snapshot.present_ids()
    for number in (0, 3, 64):  # by term; the other terms of many documents are read by document
        query = random_query(snapshot, chance)
        expected = slow_scores(snapshot, query, ids)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(index.lexical.scoring, "QUERY_TERMS", number)
            reads = QueryReads(query)
            candidates = snapshot.best(reads, 1000, None)  # as a search does: candidates first
            found = snapshot.scores(reads, np.append(ids, 10**6))
        assert found[:-1] == pytest.approx(expected, abs=1e-6)
        assert found[-1] == 0
        assert len(np.setdiff1d(candidates, ids)) == 0


def assert_finds_the_best(store: DocumentStore, chance: random.Random) -> None:
    """Compare candidates with the scores of all documents, where all terms are read by term."""
    snapshot = snapshot_of(store)
    ids, query = snapshot.present_ids(), random_query(snapshot, chance)
    among = IdSet(int(ids.max(initial=0)) + 1, ids[::3], inverted=chance.random() < 0.5)
    selected = ids[among.contains(ids)]
    scores = snapshot.scores(QueryReads(query), selected)
    for k in (1, 4, 1000):
        best = snapshot.best(QueryReads(query), k, among)
        assert len(best) == min(k, int((scores > 0).sum()))
        assert len(set(best.tolist())) == len(best)
        found = np.sort(scores[np.isin(selected, best)])
        assert found == pytest.approx(np.sort(scores)[len(selected) - len(best) :], abs=1e-6)


def test_changes_of_several_threads_are_followed_in_any_order(
    store: DocumentStore, entry: MakeEntry
) -> None:
    threads = [
        threading.Thread(target=store.put, args=([entry(f"{n}{m}", f"two {n}") for m in "ab"],))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.lexical.position == store.sequence
    assert_says_what_the_texts_say(store)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))])
@pytest.mark.parametrize("drift", [0.0, 5.0])
def test_it_follows_every_change(
    open_store: OpenStore,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    drift: float,
) -> None:
    monkeypatch.setattr(index.lexical.frequencies, "MAX_DRIFT", drift)
    monkeypatch.setattr(index.lexical.frequencies, "_ALWAYS_RENEWED", 0)
    chance = random.Random(seed)
    store = open_store()
    texts: dict[str, str] = {}

    def put() -> None:
        names = {f"d{chance.randint(0, 50)}" for _ in range(chance.randint(1, 9))}
        texts.update({name: text_of(chance) for name in names})
        store.put([entry(name, texts[name] or "-") for name in names])

    def change_titles() -> None:
        names = chance.sample(sorted(texts), min(len(texts), 3))
        store.put([entry(name, texts[name] or "-", chance.choice(WORDS)) for name in names])

    def delete() -> None:
        names = chance.sample(sorted(texts), min(len(texts), chance.randint(0, 4)))
        store.delete([*names, "unknown"])
        for name in names:
            del texts[name]

    def reopen() -> None:
        nonlocal store
        store.close()
        store = open_store()

    def read_titles() -> None:
        store.lexical.refresh_titles(SilentProgress())

    actions = [put, put, change_titles, delete, store.lexical.publish, read_titles, reopen]
    for number in range(60):
        action = chance.choice(actions)
        if action is actions[4]:
            store.lexical.publish()
            assert store.lexical.unpublished() == 0
        else:
            action()
        if number % 3 == 0:
            assert_says_what_the_texts_say(store)
            assert_scores_as_the_slow_path_does(store, chance)
            assert_finds_the_best(store, chance)
            assert_norms_are_those_of_the_frequencies(store)
    assert_says_what_the_texts_say(store)


@pytest.fixture
def published(store: DocumentStore, entry: MakeEntry) -> DocumentStore:
    chance = random.Random(1)
    store.put([entry(f"d{n}", text_of(chance) or "-") for n in range(40)])
    store.lexical.publish()
    return store


def segment_files(store: DocumentStore) -> list[str]:
    files = store.lexical.path.parent.iterdir()
    return sorted(path.name for path in files if not path.name.startswith(WORDS_FILE))


def test_opening_reads_the_files_and_what_came_later(
    published: DocumentStore,
    open_store: OpenStore,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published.put([entry("later", "word1 word2")])
    published.delete(["d3"])
    published.close()
    monkeypatch.setattr(index.lexical.segmented_index, "write_terms", None)  # nothing is counted
    store = open_store()
    assert store.lexical.unpublished() == 2
    assert_says_what_the_texts_say(store)


def test_norms_are_read_from_files(published: DocumentStore, open_store: OpenStore) -> None:
    snapshot = snapshot_of(open_store())
    assert all(segment.current[segment.present].all() for segment in snapshot.segments)
    assert_norms_are_those_of_the_frequencies(published)


def test_files_in_use_are_not_written_again(published: DocumentStore, entry: MakeEntry) -> None:
    before = segment_files(published)
    published.delete(["d1"])
    published.put([entry("later", "word1 word2")])
    published.lexical.publish()
    after = segment_files(published)
    assert len(set(before) & set(after)) >= 2  # segments
    assert sum(name.endswith(".terms") for name in after) == 1  # the former ones are deleted
    assert_says_what_the_texts_say(published)


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_rebuilt(
    published: DocumentStore, open_store: OpenStore, damage: str
) -> None:
    published.close()
    directory = published.lexical.path.parent
    kept = shutil.copytree(directory, directory.with_name("kept"))
    for path in sorted(directory.glob("[0-9]*")):
        content = path.read_bytes()
        if damage == "remove":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(content[:-1])
        else:
            middle = len(content) // 2
            flipped = bytes([content[middle] ^ 4])
            path.write_bytes(content[:middle] + flipped + content[middle + 1 :])
        with closing(open_store()) as again:
            assert_says_what_the_texts_say(again)
            assert again.lexical.unpublished() > 0
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
    with closing(open_store()) as whole:
        assert_says_what_the_texts_say(whole)
        assert whole.lexical.unpublished() == 0


@pytest.mark.parametrize("place", [0, 3, -1])
def test_terms_that_are_no_segment_yet_are_checked(
    published: DocumentStore, open_store: OpenStore, entry: MakeEntry, place: int
) -> None:
    published.put([entry("later", "word1 word2")])
    published.close()
    with closing(sqlite3.connect(published.lexical.path)) as file, file:
        ((row, terms),) = file.execute("SELECT rowid, terms FROM document_terms")
        damaged = bytearray(terms)
        damaged[place] ^= 64
        file.execute("UPDATE document_terms SET terms = ? WHERE rowid = ?", (damaged, row))
    with closing(open_store()) as again:
        assert_says_what_the_texts_say(again)


@pytest.mark.parametrize("damage", ["term = x'00'", f"term_id = {2**60}"])
def test_a_flipped_bit_of_a_term_is_damage(
    published: DocumentStore, open_store: OpenStore, entry: MakeEntry, damage: str
) -> None:
    published.put([entry("later", "word1 unheard")])
    published.close()
    with closing(sqlite3.connect(published.lexical.path)) as file, file:
        file.execute(f"UPDATE terms SET {damage} WHERE term = 'unheard'")
    with closing(open_store()) as again:
        assert_says_what_the_texts_say(again)


def test_segments_of_another_file(
    published: DocumentStore, open_store: OpenStore, entry: MakeEntry, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    other = open_store(tmp_path / "elsewhere" / "store.sqlite3")
    other.put([entry(f"o{n}", f"word{n} of the other") for n in range(40)])
    other.lexical.publish()
    for store in (other, published):
        store.close()
    for path in published.lexical.path.parent.glob("[0-9]*"):
        path.unlink()
    for path in other.lexical.path.parent.glob("[0-9]*"):
        shutil.copy(path, published.lexical.path.parent)
    assert_says_what_the_texts_say(open_store())


@pytest.mark.parametrize("published_later", [False, True])
def test_a_kill_between_the_segments_and_the_file(
    published: DocumentStore,
    open_store: OpenStore,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
    published_later: bool,
) -> None:
    published.put([entry("later", "word1 word2")])

    def fail(*_: object) -> None:
        raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(index.lexical.segmented_index, "note_published", fail)
        with pytest.raises(StoreError, match="killed"):
            published.lexical.publish()
    if published_later:
        published.lexical.publish()
    published.delete(["d1"])
    published.close()
    assert_says_what_the_texts_say(open_store())


def test_the_folder_is_deleted_while_it_is_open(
    published: DocumentStore, open_store: OpenStore, entry: MakeEntry
) -> None:
    query = published.lexical.read("word1 word2")
    expected = published.lexical.search(query, 10)
    shutil.rmtree(published.lexical.path.parent)
    with pytest.raises(LexicalIndexNotReadyError):  # its ids are of the file that is gone
        published.lexical.search(query, 10)
    found = published.lexical.search(published.lexical.read("word1 word2"), 10)
    assert found.vector_ids.tolist() == expected.vector_ids.tolist()
    published.put([entry("later", "word1 word2")])
    published.lexical.publish()
    assert_says_what_the_texts_say(published)
    published.close()
    assert_says_what_the_texts_say(open_store())


def test_a_publication_that_fails_leaves_the_former_one(
    published: DocumentStore,
    open_store: OpenStore,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published.put([entry("later", "word1 word2")])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("index.lexical.snapshot.sync", full)
        with pytest.raises(SnapshotError, match="No space left on device"):
            published.lexical.publish()
    assert_says_what_the_texts_say(published)
    assert published.lexical.unpublished() == 1
    assert_says_what_the_texts_say(open_store())
    published.lexical.publish()
    assert published.lexical.unpublished() == 0


def test_a_reader_follows_a_writer_that_publishes(
    published: DocumentStore, open_store: OpenStore, entry: MakeEntry
) -> None:
    reader = open_store(read_only=True)
    assert_says_what_the_texts_say(reader)
    published.delete(["d1", "d2"])
    published.put([entry("later", "word1 word2")])
    published.lexical.publish()  # forgets these removals
    assert_says_what_the_texts_say(reader)
    with pytest.raises(StoreError):
        reader.lexical.publish()


def test_searches_see_whole_states(published: DocumentStore, entry: MakeEntry) -> None:
    torn: list[object] = []
    writing = threading.Event()
    writing.set()

    def read() -> None:
        while writing.is_set():
            found = published.lexical.search(published.lexical.read("twins"), 500)
            if len(found.vector_ids) % 2:
                torn.append(found)

    def publish() -> None:
        while writing.is_set():
            published.lexical.publish()

    threads = [threading.Thread(target=target) for target in (read, read, publish)]
    for thread in threads:
        thread.start()
    for number in range(60):
        published.put([entry(f"{number}{twin}", f"twins of {number}") for twin in "ab"])
        found = published.lexical.search(published.lexical.read("twins"), 500)
        assert len(found.vector_ids) == 2 * (number + 1 - (number // 3))
        if number % 3 == 2:
            published.delete([f"{number}a", f"{number}b"])
    writing.clear()
    for thread in threads:
        thread.join()
    assert not torn
    assert_says_what_the_texts_say(published)
