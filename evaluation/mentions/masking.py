"""Texts in which the titles of other documents are masked.

Nothing that is measured on them can come from a mention. The masked corpus is a file like any other
corpus, so that everything reads the same texts; its texts have other hashes than the original ones.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from encoder.terms.title_matcher import TitleMatcher
from index.build import report_skipped
from index.corpus.reader import count_documents, read_corpus
from index.document import Document
from index.errors import CorpusError
from index.lexical.terms import (
    MAX_TITLE_WORDS,
    hash_words,
    known_titles,
    title_term,
    title_words,
    word_spans,
    words_of,
)
from index.progress import Progress

MASK = "_"  # no word, and no end of a sentence


@dataclass(frozen=True, slots=True)
class MaskedFiles:
    """A corpus, and queries, with masked texts.

    Attributes:
        files: JSON Lines, in the order of the original ones.
        documents: how many texts had a mention.
        mentions: how many mentions they had.
        skipped: how many pieces of input were skipped.
    """

    files: tuple[Path, ...]
    documents: int
    mentions: int
    skipped: int


@dataclass(frozen=True, slots=True)
class TitleMask:
    """Masks the titles of a corpus in texts.

    Attributes:
        titles: of all documents.
        own: by document, the term of its title, where no other document has the same.
    """

    titles: TitleMatcher
    own: Mapping[str, str]

    def __call__(self, document: Document) -> tuple[str, int]:
        """Mask each mention of another document's title in a text.

        A mention is a run of words as the lexical index finds it, with all that is between them;
        mentions that overlap become one. The document's own title stays, but for words of it that
        are the title of another document.

        Returns:
            The text and the number of masks in it. It names no title of another document.
        """
        text, own = document.text, self.own.get(document.id, "")
        masks = 0
        # Words that a mask has brought together can be a title, since it is no word.
        while spans := list(_joined(self._find(text, own))):
            pieces, done = [], 0
            for begin, end in spans:
                pieces += [text[done:begin], MASK]
                done = end
            text = "".join([*pieces, text[done:]])
            masks += len(spans)
        return text, masks

    def _find(self, text: str, own: str) -> list[tuple[int, int]]:
        words = words_of(text)
        runs = [
            (start, start + length - 1)
            for length, starts, _ in self.titles.find(hash_words(words))
            for start in starts.tolist()
            if title_term(words[start : start + length]) != own
        ]
        spans = word_spans(text) if runs else []  # places take longer than words
        return sorted((spans[first][1], spans[last][2]) for first, last in runs)


def read_title_mask(corpus: Path) -> TitleMask:
    """Read the titles of a corpus.

    Raises:
        CorpusError: the corpus cannot be read, or no document has a title that can be masked.
    """
    titles = {item.id: item.title for item in read_corpus(corpus) if isinstance(item, Document)}
    words = {name: title_words(title) for name, title in titles.items()}
    terms = {name: title_term(of_title) for name, of_title in words.items() if of_title}
    if not terms:
        raise CorpusError(f"{corpus}: no document has a title of 1 to {MAX_TITLE_WORDS} words")
    having = Counter(terms.values())
    own = {name: term for name, term in terms.items() if having[term] == 1}
    return TitleMask(known_titles(titles.values()), own)


def write_masked_files(
    files: Sequence[Path], mask: TitleMask, folder: Path, progress: Progress
) -> MaskedFiles:
    """Write a corpus, and queries, as JSON Lines with masked texts; titles stay as they are.

    A query is no document of the corpus, whatever its id is: no title in it is its own.

    Args:
        files: the corpus, then the queries if they are no documents of it.
        mask: of the titles of the corpus.
        folder: to write into.
        progress: is notified of progress and skipped input.
    """
    written, counts = [], Counter[str]()
    for number, (path, masking) in enumerate(
        zip(files, (mask, replace(mask, own={})), strict=False)
    ):
        progress.started("masking mentions", count_documents(path))
        written.append(folder / f"{number}.jsonl")
        with written[-1].open("w", encoding="utf-8") as file:
            for item in report_skipped(read_corpus(path), progress):
                progress.advanced(1)
                if isinstance(item, Document):
                    text, masks = masking(item)
                    counts.update(documents=masks > 0, mentions=masks)
                    file.write(_line(item, text))
                else:
                    counts["skipped"] += 1
    return MaskedFiles(tuple(written), counts["documents"], counts["mentions"], counts["skipped"])


def _line(document: Document, text: str) -> str:
    fields = {"id": document.id, "title": document.title, "text": text}
    return json.dumps(fields | {"metadata": document.metadata}, ensure_ascii=False) + "\n"


def _joined(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join spans that overlap; they are sorted."""
    begin = end = -1
    for next_begin, next_end in spans:
        if next_begin >= end:
            if end >= 0:
                yield begin, end
            begin = next_begin
        end = max(end, next_end)
    if end >= 0:
        yield begin, end
