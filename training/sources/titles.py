"""Links of a corpus without any: a document that names another one's title is linked to it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from encoder.terms.segmentation import words_of
from encoder.terms.title_matcher import TitleMatcher, match_titles
from index.document import Document
from index.lexical.terms import hash_words, title_words
from index.progress import Progress
from training.sources.linked_corpus import LinkedDocument, Mention, without_overlaps

# A title of one word is used if at most this many documents name it: the others are common words.
RARE = 10
_MIN_LETTERS = 4  # of a title of one word
_WHITE_SPACE = re.compile(r"\s")


@dataclass(frozen=True, slots=True)
class _Title:
    """A title of one document only, as it is written, with single spaces."""

    owner: str
    written: str
    single: bool

    def find(self, text: str) -> Iterator[Mention]:
        """Find the title in a text whose white space is spaces."""
        rest = self.written[1:]
        place = text.find(rest, 1)
        while place >= 0:
            start, end = place - 1, place + len(rest)
            first = text[start]
            same = first == self.written[0] or first.swapcase() == self.written[0]
            if same and not text[start - 1 : start].isalnum() and not text[end : end + 1].isalnum():
                yield Mention(start, end, self.owner)
            place = text.find(rest, place + 1)


_Titles = Mapping[tuple[str, ...], _Title]


def link_by_titles(documents: Sequence[Document], progress: Progress) -> list[LinkedDocument]:
    """Find the titles that documents name.

    A title is found as it is written, except that its first letter may be in either case: "Solar
    energy" is named by "solar energy", but "The End" is not named by "the end". Titles of two or
    more words and rare single words are used. A title that two documents have is none.
    """
    titles = _read_titles(documents)
    known = match_titles(hash_words(words) for words in titles)
    progress.started("searching texts for titles", len(documents))
    found: list[tuple[Mention, ...]] = []
    for document in documents:
        found.append(_mentions(document, titles, known))
        progress.advanced(1)
    common = _common_words(found, titles)
    linked = []
    for document, mentions in zip(documents, found, strict=True):
        kept = tuple(m for m in mentions if m.target not in common)
        links = frozenset(m.target for m in kept)
        linked.append(
            LinkedDocument(
                document.id, document.title, document.text, links, kept, document.metadata
            )
        )
    return linked


def _read_titles(documents: Sequence[Document]) -> _Titles:
    """Return the titles that can be searched for, by their words."""
    counts = Counter(tuple(title_words(document.title)) for document in documents)
    titles = {}
    for document in documents:
        words = tuple(title_words(document.title))
        single = len(words) == 1
        if counts[words] == 1 and words and not (single and not _is_a_name(words[0])):
            titles[words] = _Title(document.id, " ".join(document.title.split()), single)
    return titles


def _is_a_name(word: str) -> bool:
    return len(word) >= _MIN_LETTERS and not any(character.isdigit() for character in word)


def _mentions(document: Document, titles: _Titles, known: TitleMatcher) -> tuple[Mention, ...]:
    words = words_of(document.text)
    runs = {
        tuple(words[start : start + length])
        for length, starts, _ in known.find(hash_words(words))
        for start in starts.tolist()
    }
    named = [titles[run] for run in sorted(runs & titles.keys())]
    text = _WHITE_SPACE.sub(" ", document.text)
    return without_overlaps(
        [m for title in named if title.owner != document.id for m in title.find(text)]
    )


def _common_words(found: Sequence[tuple[Mention, ...]], titles: _Titles) -> set[str]:
    """Return the documents whose title is one word that is not rare."""
    single = {title.owner for title in titles.values() if title.single}
    named = Counter(name for some in found for name in {mention.target for mention in some})
    return {name for name in single if named[name] > RARE}
