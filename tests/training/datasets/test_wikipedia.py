import json
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.tools.corpora import json_lines, write
from training.datasets.similarity_join import jaccard, similar_sets
from training.datasets.wikipedia import (
    check_gwikimatch,
    read_gwikimatch,
    read_similar_articles,
    title_of,
)

SETS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from("uvwxyz")), max_size=12
)


@given(SETS, st.sampled_from([0.0, 0.3, 0.5, 0.75]))
def test_the_join_finds_what_comparing_all_finds(
    sets: dict[str, frozenset[str]], over: float
) -> None:
    found = {
        (min(name, other), max(name, other))
        for name, others in similar_sets(sets, over)
        for other in others
    }
    every = combinations(sorted(sets), 2)
    assert found == {(a, b) for a, b in every if jaccard(sets[a], sets[b]) > over}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("http://en.wikipedia.org/wiki/Chartered_Engineer", "Chartered Engineer"),
        ("https://en.wikipedia.org/wiki/Caf%C3%A9?action=raw", "Café"),
        ("https://en.wikipedia.org/wiki/AC/DC", "AC/DC"),
        ("engineering#History", "Engineering"),
        ("New%20York_City", "New York City"),
    ],
)
def test_titles_of_addresses(name: str, title: str) -> None:
    assert title_of(name) == title


def articles(count: int = 20) -> list[dict[str, object]]:
    """Articles in twos with the same links, but for one; each also links to the next articles."""
    return [
        {
            "title": f"Town {number}",
            "url": f"https://en.wikipedia.org/wiki/Town_{number}",
            "text": f"Town {number} is a town.",
            "links": [f"subject {number // 2} {link}" for link in range(8)]
            + [f"Town {(number + 3) % count}"],
        }
        for number in range(count)
    ]


def test_articles_match_by_their_links(tmp_path: Path) -> None:
    write(tmp_path / "articles.jsonl", json_lines(articles()))
    found = read_similar_articles(tmp_path, 0, SilentProgress())
    pairs = [pair for some in found.pairs.values() for pair in some]
    towns = [(f"Town {n}", f"Town {n + 1}") for n in range(0, 20, 2)]
    assert {(p.source, p.target) for p in pairs if p.label} == {(min(t), max(t)) for t in towns}
    links = {f"Town {n}": f"Town {(n + 3) % 20}" for n in range(20)}
    others = [pair for pair in pairs if not pair.label]
    assert len(others) == 10
    assert all(links[pair.source] == pair.target for pair in others)
    assert {document.id for document in found.documents} >= {
        name for town in towns for name in town
    }
    assert [len(found.pairs[part]) for part in ("train", "valid", "test")] == [16, 2, 2]


def test_links_in_the_text_are_read_and_removed(tmp_path: Path) -> None:
    records = [
        {"title": one["title"], "text": "".join(f'<a href="{link}">x</a> ' for link in links)}
        for one in articles()
        if isinstance(links := one["links"], list)
    ]
    records.append({"title": "Redirection", "text": ""})
    write(tmp_path / "AA/wiki_00", json_lines(records))
    found = read_similar_articles(tmp_path, 0, SilentProgress())
    assert sum(pair.label for some in found.pairs.values() for pair in some) == 10
    assert {document.text for document in found.documents} == {"x " * 9}


def write_gwikimatch(folder: Path) -> Path:
    write(folder / "articles.jsonl", json_lines(articles()))
    address = "http://en.wikipedia.org/wiki/Town_{}"
    for part, first in (("train", 0), ("eval", 8), ("test", 12)):
        rows = [
            (1, address.format(first), address.format(first + 1)),
            (0, address.format(first), address.format(first + 3)),
            (0, address.format(first), address.format(99)),
        ]
        lines = ("\t".join(map(str, row)) for row in rows)
        write(folder / f"gwikimatch_{part}.tsv", "\n".join(lines) + "\n")
    return folder


def test_pairs_of_addresses_get_the_texts_of_articles(tmp_path: Path) -> None:
    found = read_gwikimatch(write_gwikimatch(tmp_path), SilentProgress())
    assert [tuple(pair) for pair in found.pairs["valid"]] == [
        ("Town 8", "Town 9", True),
        ("Town 8", "Town 11", False),
    ]
    assert len(list(found.documents)) == 9
    assert found.left_out == {"pairs without a text": 3}


def test_articles_of_another_collection_are_refused(tmp_path: Path) -> None:
    folder = write_gwikimatch(tmp_path)
    write(folder / "articles.jsonl", json.dumps({"title": "A", "text": "b", "links": []}))
    with pytest.raises(CorpusError, match="of 9 pairs 0 have both texts"):
        read_gwikimatch(folder, SilentProgress())


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x_train.tsv", "2\thttp://a/wiki/A\thttp://a/wiki/B\n", "x_train.tsv:1: the label is '2'"),
        ("x_train.tsv", "1\thttp://a/wiki/A\n", "x_train.tsv:1: has 2 columns, not label"),
        ("articles.jsonl", '{"title": "A"}\n', "articles.jsonl:1: text: is missing"),
        ("articles.jsonl", '{"title": "A", "text": "b"}\n' * 2, "'A' is already at .*jsonl:1"),
        ("articles.jsonl", '{"title": "A", "text": "b", "links": "C"}', "links: is not a list"),
        ("articles.jsonl", "[]\n", "articles.jsonl:1: is not a JSON object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, name: str, content: str, error: str) -> None:
    folder = write_gwikimatch(tmp_path)
    if name == "x_train.tsv":
        (folder / "gwikimatch_train.tsv").unlink()
    write(folder / name, content)
    with pytest.raises(CorpusError, match=error):
        read_gwikimatch(folder, SilentProgress())


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no file of articles"):
        check_gwikimatch(tmp_path)
    write(tmp_path / "articles.jsonl", json_lines(articles()))
    with pytest.raises(CorpusError, match=r"there is no list of pairs \*.tsv"):
        check_gwikimatch(tmp_path)
    write(tmp_path / "articles.jsonl", '{"title": "A", "text": "b", "links": []}')
    with pytest.raises(CorpusError, match="no two articles have a link similarity"):
        read_similar_articles(tmp_path, 0, SilentProgress())
