"""Splits that no link crosses, targets that are too popular, the documents with the most links."""

from dataclasses import replace

import pytest

from training.sources.linked_document import LinkedDocument, Mention, without_overlaps
from training.sources.selection import CorpusOptions, choose_parts, select, unit_hash, without

ALL = CorpusOptions(min_words=1, held_out=0)


def document(name: str, *links: str, words: int = 5, group: str = "") -> LinkedDocument:
    text = f"{name} " + "word " * (words - 1)
    return LinkedDocument(name, name, text, frozenset(links), group=group)


def test_links_are_between_documents_that_exist_and_count_once() -> None:
    found = select(
        [document("b", "a", "b", "gone"), document("a", "b"), document("c", "b"), document("d")],
        ALL,
    )
    assert found.links == {("a", "b"), ("b", "c")}
    assert [one.id for one in found.documents] == ["b", "a", "c"]
    assert found.parts == {"b": "train", "a": "train", "c": "train"}
    assert found.left_out["documents without a link"] == 1


def test_short_and_repeated_documents_are_left_out_with_their_links() -> None:
    again = replace(document("c", "a"), text=document("a").text)
    short = document("d", "a", words=3)
    found = select(
        [document("a", "b", "c", "d"), document("b"), again, short], replace(ALL, min_words=4)
    )
    assert found.links == {("a", "b")}
    assert (found.left_out["documents repeated"], found.left_out["documents too short"]) == (1, 1)


def test_a_document_that_too_many_link_to_is_no_target() -> None:
    documents = [document("hub", "a"), *(document(name, "hub", "x") for name in "abc")]
    documents.append(document("x"))
    assert ("a", "hub") in select(documents, replace(ALL, max_named=3)).links
    found = select(documents, replace(ALL, max_named=2))
    assert found.links == {("a", "hub")}  # the hub still names others
    assert found.left_out["targets named too often"] == 2
    assert found.left_out["links to these targets"] == 6


def test_no_link_crosses_the_splits() -> None:
    names = [f"d{number}" for number in range(400)]
    documents = [document(name, *names[n : n + 12]) for n, name in enumerate(names)]
    found = select(documents, CorpusOptions(min_words=1, held_out=0.2))
    counts = {part: list(found.parts.values()).count(part) for part in ("train", "valid", "test")}
    assert 200 < counts["train"] < 280
    assert min(counts["valid"], counts["test"]) > 50
    assert all(found.parts[a] == found.parts[b] for a, b in found.links)
    assert found.left_out["links across splits"] > 1000


def test_parts_depend_on_the_texts_and_the_seed_alone() -> None:
    documents = [document(str(number)) for number in range(200)]
    parts = choose_parts(documents, 0.1, seed=0)
    renamed = [replace(one, id=f"x{one.id}", title="t") for one in reversed(documents)]
    assert choose_parts(renamed, 0.1, 0) == {f"x{name}": part for name, part in parts.items()}
    assert choose_parts(documents, 0.1, 1) != parts


def test_groups_stay_together_if_there_are_enough() -> None:
    documents = [document(str(n), group=f"g{n % 40}") for n in range(400)]
    parts = choose_parts(documents, 0.1, seed=0)
    assert all(parts[str(n)] == parts[str(n % 40)] for n in range(400))
    assert set(parts.values()) == {"train", "valid", "test"}
    few = [replace(one, group=f"g{int(one.id) % 4}") for one in documents]
    parts = choose_parts(few, 0.1, seed=0)
    assert len({parts[str(n)] for n in range(0, 400, 4)}) == 3


def test_the_documents_with_the_most_links_among_each_other_are_kept() -> None:
    clique = ["k1", "k2", "k3", "k4"]
    star = [
        document("s", *(f"leaf{n}" for n in range(6))),
        *(document(f"leaf{n}") for n in range(6)),
    ]
    found = select(
        [*star, *(document(name, *clique) for name in clique)], replace(ALL, documents=4)
    )
    assert {one.id for one in found.documents} == set(clique)
    assert len(found.links) == 6
    assert found.left_out["documents with few links"] == 7


def test_each_part_keeps_its_share() -> None:
    names = [f"d{number}" for number in range(400)]
    documents = [document(name, *names[n : n + 40]) for n, name in enumerate(names)]
    found = select(documents, CorpusOptions(documents=100, min_words=1, held_out=0.1))
    counts = {part: list(found.parts.values()).count(part) for part in ("train", "valid", "test")}
    assert counts == {"train": 80, "valid": 10, "test": 10}


def test_removing_documents_removes_those_that_then_have_no_link() -> None:
    found = select([document("a", "b"), document("c", "d"), document("b"), document("d")], ALL)
    rest = without(found, ["a"], "gone")
    assert [one.id for one in rest.documents] == ["c", "d"]
    assert rest.links == {("c", "d")}
    assert rest.left_out["gone"] == rest.left_out["documents without a link"] == 1


def test_of_overlapping_mentions_the_longest_remains() -> None:
    one, two, three = Mention(0, 4, "a"), Mention(2, 9, "b"), Mention(9, 12, "c")
    assert without_overlaps([three, two, one]) == (two, three)
    assert without_overlaps([Mention(0, 8, "a"), Mention(0, 3, "b"), Mention(5, 9, "c")]) == (
        Mention(0, 8, "a"),
    )


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_hashes_are_uniform(share: float) -> None:
    below = sum(unit_hash(str(number)) < share for number in range(4000)) / 4000
    assert below == pytest.approx(share, abs=0.03)
