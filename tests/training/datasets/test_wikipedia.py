from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import json_lines, write
from training.datasets import wikipedia

SETS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from("uvwxyz")), max_size=12
)


@given(SETS, st.sampled_from([0.0, 0.3, 0.5, 0.75]))
def test_the_join_finds_what_comparing_all_finds(
    sets: dict[str, frozenset[str]], over: float
) -> None:
    found = {
        (min(name, other), max(name, other))
        for name, others in wikipedia.similar_sets(sets, over)
        for other in others
    }
    every = combinations(sorted(sets), 2)
    assert found == {(a, b) for a, b in every if wikipedia.jaccard(sets[a], sets[b]) > over}


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("Chartered_Engineer", "Chartered Engineer"),
        ("Caf%C3%A9", "Café"),
        ("engineering#History", "Engineering"),
        ("New%20York_City", "New York City"),
    ],
)
def test_titles_of_links(name: str, title: str) -> None:
    assert wikipedia.title_of(name) == title


def articles(count: int = 20) -> list[dict[str, object]]:
    """Articles in twos with the same links, but for one; each also links to the next articles."""
    return [
        {
            "title": f"Town {number}",
            "url": f"https://en.wikipedia.org/wiki/Town_{number}",
            "text": f"Town {number} is a town.",
            "links": [
                *(f"subject {number // 2} {n}" for n in range(8)),
                f"Town {(number + 3) % count}",
            ],
        }
        for number in range(count)
    ]


def test_articles_match_by_their_links(tmp_path: Path) -> None:
    write(tmp_path / "articles.jsonl", json_lines(articles()))
    found = wikipedia.read_similar_articles(tmp_path, SilentProgress())
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
        {"title": article["title"], "text": "".join(f'<a href="{link}">x</a> ' for link in links)}
        for article in articles()
        if isinstance(links := article["links"], list)
    ]
    records.append({"title": "Redirection", "text": ""})
    write(tmp_path / "AA/wiki_00", json_lines(records))
    found = wikipedia.read_similar_articles(tmp_path, SilentProgress())
    assert sum(pair.label for some in found.pairs.values() for pair in some) == 10
    assert {document.text for document in found.documents} == {"x " * 9}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"title": "A"}\n', "articles.jsonl:1: text: is missing"),
        ('{"title": "A", "text": "b"}\n' * 2, "'A' is already at .*jsonl:1"),
        ('{"title": "A", "text": "b", "links": "C"}', "links: is not a list"),
        ("[]\n", "articles.jsonl:1: is not a JSON object"),
        ('{"title": "A", "text": "b", "links": []}', "no two articles have a link similarity"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, content: str, error: str) -> None:
    write(tmp_path / "articles.jsonl", content)
    with pytest.raises(CorpusError, match=error):
        wikipedia.read_similar_articles(tmp_path, SilentProgress())


def test_missing_articles_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no file of articles"):
        wikipedia.read_similar_articles(tmp_path, SilentProgress())
