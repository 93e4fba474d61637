"""Judged pairs of which one text names the other's title are left out, and only these."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from encoder.terms.segmentation import words_of
from evaluation import mentions
from evaluation.judgements import Qrels
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.lexical import terms
from index.progress import SilentProgress
from tests.kit.corpora import documents

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


WORDS = ["world", "war", "ii", "São", "½", "ﬁn", "İ"]


def masked(text: str, titles: Sequence[str], title: str = "") -> str:
    mask = mentions.TitleMask(
        terms.known_titles(titles),
        {"d": terms.title_term(terms.title_words(title))} if title else {},
    )
    return mask(Document("d", text))[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("After WORLD  war, ii… the end.", "After _… the end."),
        ("World War I and Warsaw.", "World War I and Warsaw."),
        ("To Sao Paulo, SÃO\nPAULO, Sa\u0303o Paulo.", "To _, _, _."),
        ("Paulo São", "Paulo São"),
        ("New York Times Square", "_"),  # mentions that overlap
        ("(Ants)", "(_)"),
        ("ants ants", "_ _"),
        ("Naïve Ants\u0301 dig", "Naïve _ dig"),  # an accent behind the last letter
    ],
)
def test_mentions_are_masked_and_nothing_else(text: str, expected: str) -> None:
    titles = ["World War II", "São Paulo", "New York Times", "Times Square", "Ants", "?!", ""]
    assert masked(text, titles) == expected


def test_the_own_title_stays_but_for_titles_in_it(tmp_path: Path) -> None:
    titles = ["World War II", "War", "Ants"]
    text = "World War II was a war."
    assert masked(text, titles[::2], title="World War II") == text
    assert masked(text, titles, title="World War II") == "World _ II was a _."
    assert masked(text, titles) == "_ was a _."
    assert masked("The red cross army came.", ["Cross", "Red Army"]) == "The _ came."
    text = "ants and bees"  # a title of two documents is masked in both
    same = {"a": ("Ants", text), "b": ("ANTS", text), "c": ("Bees", text)}
    corpus = write(tmp_path / "corpus.jsonl", same)
    found = [mentions.read_title_mask(corpus)(document)[0] for document in documents(corpus)]
    assert found == ["_ and _", "_ and _", "_ and bees"]
    assert left_out(corpus, {"a": {"a": 1, "b": 1}}) == {"a": {"b"}}  # not for itself


@settings(deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.sampled_from([*WORDS, "a", ",", "e\u0301"]), min_size=1, max_size=20),
)
def test_a_masked_text_names_no_title_and_only_loses_words(
    titles: list[list[str]], words: list[str]
) -> None:
    text, known = " ".join(words), terms.known_titles(" ".join(title) for title in titles)
    mask = mentions.TitleMask(known, {})
    found, masks = mask(Document("d", text))
    assert list(terms.named_titles(words_of(found), known)) == []
    assert (masks == 0) == (found == text)
    left = iter(text)
    assert all(
        character in left for character in found.replace(mentions.MASK, "")
    )  # in their order


def test_files_are_masked_with_what_they_hold(tmp_path: Path) -> None:
    corpus, queries, out = tmp_path / "c.jsonl", tmp_path / "q.jsonl", tmp_path / "out"
    out.mkdir()
    lines = [
        '{"id": 1, "title": "Ants", "text": "Ants and bees — ü.", "year": 1990}',
        "no JSON",
        '{"id": "b", "title": "Bees", "text": "They fly."}',
    ]
    corpus.write_text("\n".join(lines) + "\n")
    queries.write_text('{"id": 1, "title": "Ants", "text": "Ants?"}\n')
    said: list[SkippedInput] = []

    class Watching(SilentProgress):
        def skipped(self, skipped: SkippedInput) -> None:
            said.append(skipped)

    found = mentions.write_masked_files(
        [corpus, queries], mentions.read_title_mask(corpus), out, Watching()
    )
    assert found == mentions.MaskedFiles(found.files, documents=2, mentions=2, skipped=1)
    assert [skipped.where for skipped in said] == ["c.jsonl:2"]
    first, second = documents(found.files[0])
    assert first == Document("1", "Ants and _ — ü.", "Ants", {"year": 1990})
    assert second == documents(corpus)[1]
    (query,) = documents(found.files[1])
    assert query.text == "_?"  # a query is no document, whatever its id
    assert query.content_hash != documents(queries)[0].content_hash


def test_a_corpus_without_titles_cannot_be_masked(tmp_path: Path) -> None:
    corpus = tmp_path / "c.jsonl"
    corpus.write_text('{"id": "a", "text": "Ants."}\n{"id": "b", "title": "?!", "text": "Bees."}\n')
    with pytest.raises(CorpusError, match=r"c.jsonl: no document has a title of 1 to 12 words"):
        mentions.read_title_mask(corpus)
