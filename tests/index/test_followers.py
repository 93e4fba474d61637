"""The contract of followers: what is derived equals what is stored, whatever was killed or lost."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from encoder.alignment.space import neutral_space
from index import followers
from index.errors import StoreError
from index.followers import FILE_ENDINGS, Follower
from index.store.document_store import DocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import DIMENSION, FINGERPRINT
from tests.kit.paragraphs import assert_rebuild_is_equal, derived, entry_of, families_in

FIRST = list(range(10))
DOCUMENTS = {"first": FIRST, "copy": FIRST, "edited": [*FIRST[:8], 100, 101], "other": [50, 51, 52]}
FOLLOWERS = ["lexical", "families", "alignment"]

Get = Callable[[DocumentStore], Follower]


def open_at(path: Path, *, read_only: bool = False) -> DocumentStore:
    space = None if read_only else neutral_space(DIMENSION)
    about = {"fingerprint": FINGERPRINT, "dimension": DIMENSION}
    return DocumentStore(path, **about, read_only=read_only, space=space)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a closed store whose documents came and went; each test has a copy."""
    folder = tmp_path_factory.mktemp("made")
    with closing(open_at(folder / "store.sqlite3")) as store:
        for name, paragraphs in {**DOCUMENTS, "gone": FIRST}.items():
            store.put([entry_of(name, paragraphs)])
        store.put([entry_of("other", [60, 61, 62])])
        store.delete(["gone"])
    return folder


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Iterator[Path]:
    """A closed store whose documents came and went."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "store.sqlite3"
    yield path
    with closing(open_at(path)) as store:
        assert {follower.position for follower in store.followers} == {store.sequence}
        assert_rebuild_is_equal(store)


@pytest.fixture(params=FOLLOWERS)
def follower(request: pytest.FixtureRequest) -> Get:
    return lambda store: getattr(store, request.param)


def file_of(path: Path, follower: Get) -> Path:
    with closing(open_at(path)) as store:
        return follower(store).path


def delete(path: Path) -> None:
    for ending in FILE_ENDINGS:
        path.with_name(f"{path.name}{ending}").unlink(missing_ok=True)


STATEMENTS = {
    "behind": "UPDATE state SET position = 3",
    "later": "UPDATE state SET position = 999",
    "of another format": "PRAGMA user_version = 99",
    "table lost": "DROP TABLE state",
    "row lost": "DELETE FROM state",
}
DAMAGES = ["deleted", "empty", "truncated", "no database", "of another collection", *STATEMENTS]


def damage_in(path: Path, kind: str, elsewhere: Path) -> None:
    content = path.read_bytes()
    match kind:
        case "deleted":
            delete(path)
        case "of another collection":
            with closing(open_at(elsewhere)) as store:
                store.put([entry_of(f"n{n}", [n]) for n in range(9)])
            shutil.copy(next(elsewhere.parent.rglob(path.name)), path)
        case "empty" | "truncated" | "no database":
            cut = {"empty": b"", "truncated": content[: len(content) // 2]}
            path.write_bytes(cut.get(kind, b"x" * 8192))
        case _:
            sql(path, STATEMENTS[kind])


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_lost_or_damaged_file_is_made_again(
    path: Path, follower: Get, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with closing(open_at(path)) as store:
        before = derived(store)
    damage_in(file_of(path, follower), kind, tmp_path_factory.mktemp("other") / "store.sqlite3")
    with closing(open_at(path)) as store:
        assert derived(store) == before


@pytest.mark.parametrize(
    "kind", ["deleted", "truncated", "later", "of another collection", "of another format"]
)
def test_a_reader_names_what_it_cannot_read(
    path: Path, follower: Get, kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = file_of(path, follower)
    damage_in(file, kind, tmp_path_factory.mktemp("other") / "store.sqlite3")
    with closing(open_at(path, read_only=True)) as store:
        assert len(store) == len(DOCUMENTS)
        with pytest.raises(StoreError, match=file.name):
            derived(store)
    with closing(open_at(path)), closing(open_at(path, read_only=True)) as store:
        assert len(derived(store)) > 0


def test_readers_see_what_the_writer_has_acknowledged(path: Path, follower: Get) -> None:
    with closing(open_at(path)) as store, closing(open_at(path, read_only=True)) as reader:
        assert derived(reader) == derived(store)
        store.put([entry_of("late", FIRST)])
        store.delete(["copy"])
        assert derived(reader) == derived(store)
        delete(follower(store).path)  # while both have it open
        store.put([entry_of("later", FIRST)])
        assert derived(reader) == derived(store)
        assert families_in(reader) == {frozenset({"first", "edited", "late", "later"})}


def test_many_changes_are_worked_off_in_transactions_of_their_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "_IN_ITS_TRANSACTION", 1)
    monkeypatch.setattr(followers, "_DOCUMENTS_A_TRANSACTION", 1)
    with closing(open_at(path)) as store:
        store.put([entry_of(name, FIRST) for name in ("late", "later")])
        assert [follower.pending() for follower in store.followers] == [0, 0, 0]
        assert families_in(store) == {frozenset({"first", "copy", "edited", "late", "later"})}
        assert_rebuild_is_equal(store)


STEPS = ["apply", "_add", "_derive"]


@pytest.mark.parametrize("step", STEPS)
def test_a_failed_step_is_made_up_for(
    path: Path, follower: Get, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_at(path)) as store:
        with monkeypatch.context() as failing:

            def fail(*_: object) -> None:
                raise StoreError("the disk is gone")

            failing.setattr(type(follower(store)), step, fail)
            store.put([entry_of("late", FIRST)])
            store.delete(["copy"])
            assert len(store) == len(DOCUMENTS)
            assert follower(store).behind
        assert families_in(store) == {frozenset({"first", "edited", "late"})}
        assert_rebuild_is_equal(store)
        assert not follower(store).behind


def write_and_die(path: Path, name: str, step: str, when: str) -> None:
    """Write to the store, and be killed before or after a step of a follower."""
    store = open_at(path)
    follower = getattr(store, name)
    done = getattr(follower, step)

    def kill(*given: object) -> None:
        if when == "after":
            done(*given)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(follower, step, kill)
    store.delete(["copy"]) if step == "_remove" else store.put([entry_of("late", FIRST)])


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.slow), "after"])
@pytest.mark.parametrize("step", ["follow", "apply", "_remove", "_add", "_derive"])
def test_a_kill_loses_nothing(path: Path, follower: Get, step: str, when: str) -> None:
    with closing(open_at(path)) as store:
        name = next(key for key, value in vars(store).items() if value is follower(store))
    # A new process would take a second to import what this one has.
    if (child := os.fork()) == 0:
        try:
            write_and_die(path, name, step, when)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    family = {"first", "edited"} if step == "_remove" else {"first", "copy", "edited", "late"}
    with closing(open_at(path)) as store:
        assert families_in(store) == {frozenset(family)}
        assert follower(store).position == store.sequence


def test_a_store_restored_to_an_earlier_state(path: Path, follower: Get, tmp_path: Path) -> None:
    """As when the store is copied back by hand: nothing that was put later comes back."""
    copy = tmp_path / "copy.sqlite3"
    shutil.copy(path, copy)
    with closing(open_at(path)) as store:
        before = derived(store)
        store.put([entry_of("late", FIRST)])
    delete(path)
    copy.replace(path)
    with closing(open_at(path)) as store:
        assert derived(store) == before
        assert follower(store).position == store.sequence


def test_a_log_that_was_cut_means_a_rebuild(path: Path, follower: Get) -> None:
    sql(file_of(path, follower), "UPDATE state SET position = 2")
    sql(path, "UPDATE meta SET log_start = 5")
    sql(path, "DELETE FROM removals")
    with closing(open_at(path)) as store:
        assert families_in(store) == {frozenset({"first", "copy", "edited"})}
