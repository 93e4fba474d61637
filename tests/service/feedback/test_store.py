"""The feedback of a data directory: one verdict for each query and document, whatever happens."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from index.errors import StoreError
from service.errors import FeedbackFullError, FeedbackNotFoundError
from service.feedback.store import (
    FEEDBACK_FILE,
    FeedbackLimits,
    FeedbackStore,
    JudgedQuery,
    open_feedback,
)

LIMITS = FeedbackLimits(1_000, 10**6)
LONG = JudgedQuery(text="A long question about rivers. " * 1_000, title="Rivers")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FeedbackStore]:
    with closing(open_feedback(tmp_path)) as opened:
        yield opened


def queries(folder: Path) -> list[int]:
    """Return the sizes of the queries that are stored."""
    with closing(sqlite3.connect(folder / FEEDBACK_FILE)) as connection:
        return [row[0] for row in connection.execute("SELECT size FROM queries ORDER BY size")]


def test_a_text_is_stored_once_and_goes_with_its_last_verdict(
    store: FeedbackStore, tmp_path: Path
) -> None:
    given = [store.put(LONG, f"d{number}", 1, LIMITS) for number in range(20)]
    assert len(queries(tmp_path)) == 1
    assert queries(tmp_path)[0] < 1_000  # compressed
    assert list(store.all()) == sorted(given, key=lambda item: item.id)
    for name in given:
        assert len(queries(tmp_path)) == 1
        store.remove(name.id)
    assert queries(tmp_path) == []
    with pytest.raises(FeedbackNotFoundError):
        store.remove(given[0].id)


def test_different_queries_are_different(store: FeedbackStore) -> None:
    texts = [("a", ""), ("a", "b"), ("ab", ""), ("b", "a"), ("1 a", ""), ("", "1 a"), ("\0", "")]
    different = [JudgedQuery(text=text, title=title) for text, title in texts]
    different += [JudgedQuery(document_id="a"), JudgedQuery(text="")]
    given = [store.put(query, "d", 1, LIMITS) for query in different]
    assert len({verdict.id for verdict in given}) == len(different)
    assert {found.query for found in store.all()} == set(different)


def test_the_parts_of_an_export_are_bounded_and_whole(store: FeedbackStore) -> None:
    for number in range(12):
        store.put(JudgedQuery(text=f"{number}" * 100), "d", number % 4, LIMITS)
    parts, after = [], ""
    while part := store.whole(after, 250):
        assert 1 <= len(part) <= 3
        parts += part
        after = part[-1].id
    assert parts == list(store.all())
    assert [entry.id for entry in store.listed("", 5)] == [item.id for item in parts[:5]]
    assert {entry.query.text for entry in store.listed("", 50)} == {None}
    assert store.grades() == {0: 3, 1: 3, 2: 3, 3: 3}
    assert store.relevant_queries() == 9


def test_documents_are_forgotten_with_all_that_names_them(
    store: FeedbackStore, tmp_path: Path
) -> None:
    store.put(JudgedQuery(document_id="a"), "b", 1, LIMITS)
    store.put(JudgedQuery(document_id="b"), "c", 1, LIMITS)
    kept = store.put(JudgedQuery(document_id="c"), "d", 1, LIMITS)
    store.put(LONG, "b", 1, LIMITS)
    assert sorted(store.documents()) == ["a", "b", "c", "d"]
    store.forget(["b", "nobody", "\0"])
    assert list(store.all()) == [kept]
    assert len(queries(tmp_path)) == 1


def test_the_limits_hold_for_writers_at_once(store: FeedbackStore) -> None:
    limits = FeedbackLimits(25, 10**6)

    def is_refused(number: int) -> bool:
        try:
            store.put(JudgedQuery(text=str(number)), "d", 1, limits)
        except FeedbackFullError:
            return True
        return False

    with ThreadPoolExecutor(6) as pool:
        refused = sum(pool.map(is_refused, range(60)))
    assert len(list(store.all())) == 25
    assert refused == 35


def test_a_query_that_is_too_large_leaves_nothing(store: FeedbackStore, tmp_path: Path) -> None:
    with pytest.raises(FeedbackFullError, match="10 bytes of texts"):
        store.put(LONG, "d", 1, FeedbackLimits(10, 10))
    assert queries(tmp_path) == []


def test_what_was_stored_is_there_after_the_next_opening(tmp_path: Path) -> None:
    with closing(open_feedback(tmp_path)) as store:
        given = store.put(LONG, "d", 3, LIMITS)
    with closing(open_feedback(tmp_path, read_only=True)) as store:
        assert list(store.all()) == [given]
        with pytest.raises(StoreError, match="for reading only"):
            store.remove(given.id)


def test_another_database_is_not_taken_for_feedback(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FEEDBACK_FILE)) as connection:
        connection.execute("CREATE TABLE verdicts (id TEXT)")
    with pytest.raises(StoreError, match="is a database, but not one of Longmatch's feedback"):
        open_feedback(tmp_path)
    with pytest.raises(StoreError):
        open_feedback(tmp_path / "missing", read_only=True)
