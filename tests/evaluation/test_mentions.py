"""Judged pairs of which one text names the other's title are left out, and only these."""

import json
from pathlib import Path

import pytest

from evaluation import mentions
from evaluation.judgements import Qrels
from index.lexical import terms

LONG = " ".join(["word"] * (terms.MAX_TITLE_WORDS + 1))
DOCUMENTS = {
    "war": ("World War II", "It began in Poland, and a treaty of Kiel was of another time."),
    "battle": ("A battle", "It was part of world  war, ii: the tanks met."),
    "world": ("World", "The worlds of the sea."),
    "treaty": ("Treaty of Kiel", "Signed in 1814 by three powers."),
    "untitled": ("", "It is about World War II and the Treaty of Kiel."),
    "signs": ("?!", "What?! Nothing."),
    "long": (LONG, f"It holds {LONG}."),
    "names long": ("Longer", f"Here is {LONG}."),
}


def write(path: Path, documents: dict[str, tuple[str, str]]) -> Path:
    lines = [{"id": i, "title": title, "text": text} for i, (title, text) in documents.items()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "corpus.jsonl", DOCUMENTS)


def left_out(corpus: Path, qrels: Qrels) -> dict[str, set[str]]:
    found = mentions.leave_out_mentions(qrels, corpus).left_out
    return {query: set(documents) for query, documents in found.items()}


def test_a_mention_counts_in_both_directions_and_as_whole_words(corpus: Path) -> None:
    every = dict.fromkeys(DOCUMENTS, 1)
    found = left_out(corpus, dict.fromkeys(DOCUMENTS, every))
    assert found["war"] == {"battle", "treaty", "untitled"}
    assert found["battle"] == {"war", "world"}  # "worlds" is another word, "world" a title
    assert found["world"] == {"battle", "untitled"}
    assert found["treaty"] == {"war", "untitled"}
    assert found["untitled"] == {"war", "world", "treaty"}  # it has no title to be named
    # Titles without words or with too many are never named.
    qrels = {"signs": {"long": 1, "untitled": 1}, "names long": {"long": 1, "signs": 1}}
    assert left_out(corpus, qrels) == {"signs": set(), "names long": set()}


def test_what_is_left(corpus: Path) -> None:
    qrels = {
        "war": {"battle": 2, "world": 1, "treaty": 0, "signs": 0},
        "treaty": {"war": 1, "world": 0},  # nothing relevant is left
        "world": {"treaty": 0, "signs": 0},  # nothing was relevant
        "gone": {"war": 1},  # the corpus lacks the query: nothing is known of it
        "signs": {"gone": 1, "signs": 1},
    }
    found = mentions.leave_out_mentions(qrels, corpus)
    assert found.qrels == {
        "war": {"world": 1, "signs": 0},
        "gone": {"war": 1},
        "signs": {"gone": 1, "signs": 1},
    }
    assert found.left_out["war"] == {"battle", "treaty"}
    assert found.left_out["treaty"] == {"war"}
    assert found.titles == 4  # of the judged documents


def test_queries_of_their_own_file(corpus: Path, tmp_path: Path) -> None:
    """A query may have the id of a document, and is still another text."""
    queries = write(
        tmp_path / "queries.jsonl",
        {"war": ("", "What was World War II?"), "q": ("Poland", "A country.")},
    )
    qrels = {"war": {"war": 1, "treaty": 1}, "q": {"war": 1, "treaty": 1}}
    found = mentions.leave_out_mentions(qrels, corpus, queries)
    assert found == mentions.JudgementsWithoutMentions(
        qrels={"war": {"treaty": 1}, "q": {"treaty": 1}},
        left_out={"war": frozenset({"war"}), "q": frozenset({"war"})},
        titles=3,
    )
