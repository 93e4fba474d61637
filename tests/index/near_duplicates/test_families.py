"""Families in the store: what is one, and that it is the same whatever happened before."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import StoreError
from index.near_duplicates import signatures as near_copies
from index.near_duplicates.signatures import (
    BANDS,
    FEWEST_WORDS,
    band_keys,
    resemblances,
    sign,
    signing_rule,
    unpack,
)
from index.progress import SilentProgress
from index.store.document_store import DocumentStore
from tests.index.conftest import sql
from tests.kit.index_fixtures import OpenStore
from tests.kit.paragraphs import assert_rebuild_is_equal, entry_of, expected_families, families_in

FIRST = list(range(10))
OTHER = list(range(50, 60))


def put(store: DocumentStore, **documents: list[int]) -> None:
    """Put documents one by one, each given by its paragraphs."""
    for name, paragraphs in documents.items():
        store.put([entry_of(name, paragraphs)])


def test_copies_edits_and_larger_parts_are_a_family(store: DocumentStore) -> None:
    edited, longer = [*FIRST[:8], 100, 101], [*FIRST, *range(200, 208)]
    quotes = [*FIRST[:3], *range(300, 310)]
    put(store, first=FIRST, copy=FIRST, edited=edited, longer=longer, other=OTHER, quotes=quotes)
    assert families_in(store) == {frozenset({"first", "copy", "edited", "longer"})}


def test_documents_and_their_families_are_hidden(store: DocumentStore) -> None:
    put(store, first=FIRST, copy=FIRST, other=OTHER, beyond=list(range(300, 310)))
    ids = {name: found.vector_id for name, found in store.find(["first", "copy", "other"]).items()}
    assert store.families.hidden_by(["first", "other"]).tolist() == sorted(ids.values())
    assert store.families.hidden_by(["other", "gone"]).tolist() == [ids["other"]]


def test_two_texts_that_were_put_together_stay_apart(store: DocumentStore) -> None:
    put(store, one=FIRST, other=OTHER[:7], both=[*FIRST, *OTHER[:7]])
    assert families_in(store) == {frozenset({"one", "both"})}


def test_without_block_vectors_words_decide(store: DocumentStore) -> None:
    store.put([entry_of("first", FIRST, blocks=False)])
    put(store, edited=[*FIRST[:9], 100])
    store.put([entry_of("half", [*FIRST[:5], *range(200, 205)], blocks=False)])
    assert families_in(store) == {frozenset({"first", "edited"})}


CHAIN = {
    name: list(range(4 * n, 4 * n + 10)) for n, name in enumerate("abcde")
}  # two in five are new


def test_a_family_keeps_its_number_while_others_come_and_go(store: DocumentStore) -> None:
    put(store, other=OTHER, first=FIRST, copy=FIRST)
    number = store.families.of_ids(["first"])["first"]
    put(store, edited=[*FIRST[:8], 100, 101], away=OTHER)
    store.delete(["copy", "away"])
    assert store.families.of_ids(["first", "edited", "other"]) == {
        "first": number,
        "edited": number,
    }


def test_documents_exchange_their_texts_in_one_call(store: DocumentStore) -> None:
    put(store, one=FIRST, other=OTHER, copy=FIRST)
    store.put([entry_of("one", OTHER), entry_of("other", FIRST)])
    assert families_in(store) == {frozenset({"other", "copy"})}
    assert store.families.pending() == 0


def test_a_family_is_listed_a_page_at_a_time(store: DocumentStore) -> None:
    put(store, b=FIRST, a=[*FIRST[:8], 100, 101], c=FIRST, other=OTHER)
    number, members = store.families.page("b", "", 2)
    assert [(member.id, member.copy) for member in members] == [("a", False), ("b", True)]
    assert [member.id for member in store.families.page("a", "b", 9)[1]] == ["c"]
    [family] = store.families.largest(10)
    assert (family.number, family.documents, family.texts, family.first) == (number, 3, 2, "a")
    assert store.families.totals() == (1, 3)
    ids = store.families.vector_ids([family.number]).tolist()
    assert {summary.id for summary in store.get(ids).values()} == {"a", "b", "c"}
    assert store.families.page("unknown", "", 9) == (None, [])


PARAGRAPHS = st.lists(st.integers(0, 11), min_size=1, max_size=8, unique=True).map(sorted)
OPERATIONS = st.lists(
    st.tuples(st.sampled_from("abcdefg"), st.none() | PARAGRAPHS), min_size=1, max_size=25
)


@given(operations=OPERATIONS, reopened=st.booleans())
def test_families_depend_on_what_is_stored_alone(
    operations: list[tuple[str, list[int] | None]],
    reopened: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("families") / "store.sqlite3"
    documents: dict[str, list[int]] = {}

    def opened() -> DocumentStore:
        return DocumentStore(path, fingerprint="a" * 64, dimension=16)

    store = opened()
    for number, (name, paragraphs) in enumerate(operations):
        if paragraphs is None:
            store.delete([name])
            documents.pop(name, None)
        else:
            store.put([entry_of(name, paragraphs)])
            documents[name] = paragraphs
        assert families_in(store) == expected_families(documents)
        if reopened and number % 4 == 3:
            store.close()
            store = opened()
    assert_rebuild_is_equal(store)
    store.close()


DOCUMENTS = {
    **{
        f"{name}{n}": [100 * n + paragraph for paragraph in row]
        for name, row in CHAIN.items()
        for n in (1, 2)
    },
    **{f"alone{n}": list(range(5_000 + 10 * n, 5_010 + 10 * n)) for n in range(80)},
}


@pytest.mark.slow
def test_texts_that_were_there_before_are_found_later(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.followers.AT_OPENING", 0)
    monkeypatch.setattr("index.followers._DOCUMENTS_A_TRANSACTION", 16)
    store = open_store(find_families=False)
    put(store, **DOCUMENTS)
    assert families_in(store) == set()
    assert store.families.pending() == len(DOCUMENTS)
    store.close()
    store = open_store()
    put(store, late=DOCUMENTS["a1"])
    turns = iter(range(100))
    store.families.finish(SilentProgress(), lambda: next(turns) > 0)  # stopped after one round
    assert 0 < store.families.pending() < len(DOCUMENTS)
    store.families.finish(SilentProgress())
    assert store.families.pending() == 0
    assert families_in(store) == expected_families({**DOCUMENTS, "late": DOCUMENTS["a1"]})


def test_switched_off_it_still_forgets_what_is_deleted(open_store: OpenStore) -> None:
    store = open_store()
    put(store, **CHAIN)
    store.close()
    store = open_store(find_families=False)
    store.delete(["c"])
    put(store, f=CHAIN["a"])
    assert families_in(store) == {frozenset({"a", "b"}), frozenset({"d", "e"})}
    assert store.families.pending() == 1
    store.families.finish(SilentProgress())
    assert families_in(store) == {frozenset({"a", "b", "f"}), frozenset({"d", "e"})}


def test_signatures_of_another_rule(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    put(store, **CHAIN)
    store.close()
    monkeypatch.setattr("index.near_duplicates.families.signing_rule", lambda: "another library")
    with pytest.raises(StoreError, match=r"families\.sqlite3: follows another state"):
        families_in(open_store(read_only=True))
    store = open_store()
    assert store.families.pending() == 0
    assert families_in(store) == {frozenset(CHAIN)}
    ((rule,),) = sql(store.families.path, "SELECT rule FROM state")
    assert rule.endswith(" another library")


@pytest.mark.slow
def test_many_near_duplicates_are_bounded(
    store: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form that was filled in five hundred times."""
    compared: list[int] = []
    resemblances = near_copies.resemblances

    def counted(signature: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
        compared.append(len(others))
        return resemblances(signature, others)

    monkeypatch.setattr("index.near_duplicates.families.resemblances", counted)
    forms = [entry_of(f"form{n:03}", [*FIRST[:6], 1_000 + n]) for n in range(300)]
    for start in range(0, len(forms), 50):
        store.put(forms[start : start + 50])
    assert max(compared) == 64
    assert store.families.totals() == (1, 300)
    assert sql(store.families.path, "SELECT count(*) FROM text_links")[0][0] <= 2 * 16 * 300
    store.delete([f"form{n:03}" for n in range(16)])
    assert store.families.totals() == (1, 284)


REPOSITORY = Path(__file__).parents[3]


def words(count: int, first: int = 0) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


@given(shared=st.integers(0, 1_000))
def test_a_resemblance_is_about_that_of_the_rows(shared: int) -> None:
    first, other = words(1_000), words(1_000, 1_000 - shared)
    rows = max(0, shared - 2)
    [estimated] = resemblances(sign(first), [sign(other)]).tolist()
    assert estimated == pytest.approx(rows / (2 * 998 - rows), abs=0.17)  # four deviations


def test_resembling_texts_share_a_band() -> None:
    chance = random.Random(1)
    found = 0
    for turn in range(100):
        first = chance.randrange(10**9)
        text, other = words(400, first), words(400, first + 200)  # a resemblance of a third
        found += bool(set(band_keys(sign(text))) & set(band_keys(sign(other))))
        assert not set(band_keys(sign(text))) & set(band_keys(sign(words(400, turn * 500))))
    assert found >= 90


def test_case_and_white_space_do_not_count() -> None:
    assert sign(words(80)).tolist() == sign(words(80).upper().replace(" ", "\n\t ")).tolist()


def test_a_short_text_has_no_signature() -> None:
    assert len(sign(words(FEWEST_WORDS - 1))) == 0
    assert band_keys(sign("a few words")) == []
    assert len(band_keys(sign(words(FEWEST_WORDS)))) == BANDS


def test_a_script_without_spaces_has_words() -> None:
    text = "".join(chr(0x4E00 + 7 * number) for number in range(300))
    [estimated] = resemblances(sign(text), [sign(text[:200])]).tolist()
    assert estimated == pytest.approx(198 / 298, abs=0.17)


def test_a_signature_is_the_same_in_every_process() -> None:
    code = (
        "from index.near_duplicates.signatures import sign, signing_rule\n"
        "print(sign(' '.join(f'w{n}' for n in range(99))).tolist(), signing_rule())"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert finished.stdout == f"{sign(words(99)).tolist()} {signing_rule()}\n"


@pytest.mark.parametrize("damaged", [b"abc", "text", 5])
def test_a_damaged_signature_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="signature of a text is damaged"):
        unpack(damaged)
