"""Measure without mentions: texts that name the titles of other documents.

A judgement that was made from a link may be a mere mention: "as in World War II" links an article
with that of the war, whatever the rest of it is about. A system that looks for titles in texts
finds such pairs by the mention alone, so how well it finds documents on the same subject has to be
measured on the others: judged pairs of which one text names the title of the other are left out, or
the titles are masked in all texts. The masked corpus is a file like any other corpus, so that
everything reads the same texts; its texts have other hashes than the original ones.
"""

import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from encoder.terms.segmentation import word_spans, words_of
from encoder.terms.title_matcher import TitleMatcher
from evaluation.judgements import Qrels
from index.build import report_skipped
from index.corpus.reader import count_documents, read_corpus
from index.document import Document
from index.errors import CorpusError
from index.lexical.terms import (
    MAX_TITLE_WORDS,
    hash_words,
    known_titles,
    named_titles,
    title_term,
    title_words,
)
from index.progress import Progress


@dataclass(frozen=True, slots=True)
class JudgementsWithoutMentions:
    """What is left of judgements.

    Attributes:
        qrels: the pairs that are left, of queries that still have a relevant document.
        left_out: the documents of each query that are neither relevant nor irrelevant to it; they
            are not ranked.
        titles: how many different titles the judged documents and queries have.
    """

    qrels: Qrels
    left_out: Mapping[str, frozenset[str]]
    titles: int


@dataclass(frozen=True, slots=True)
class _Text:
    """The term of its title, empty where none can be named, and those that the text names."""

    title: str
    named: frozenset[str]


def leave_out_mentions(
    qrels: Qrels, corpus: Path, queries: Path | None = None
) -> JudgementsWithoutMentions:
    """Leave out each judged pair of query and document of which one text names the other's title.

    A title is named where its words, at least one and at most `MAX_TITLE_WORDS` of them, follow one
    another in a text, as the lexical index finds them. A pair that is left out is neither relevant
    nor irrelevant: it is missing from the judgements, and its document from the ranking of its
    query. A query that has no relevant document left is dropped. Documents without a judgement stay
    in the rankings, whatever they name.
    """
    judged = {document for documents in qrels.values() for document in documents}
    wanted = judged if queries else judged | qrels.keys()
    documents = _read(corpus, wanted)
    query_texts = _read(queries, qrels.keys()) if queries else documents
    titles = known_titles(
        document.title for document in (*documents.values(), *query_texts.values())
    )
    of_documents = _find_mentions(documents, titles)
    of_queries = _find_mentions(query_texts, titles) if queries else of_documents
    left_out = {
        query: frozenset(
            name
            for name in relevances
            if name in of_documents and _mention(of_queries[query], of_documents[name])
        )
        for query, relevances in qrels.items()
        if query in of_queries
    }
    return JudgementsWithoutMentions(_without(qrels, left_out), left_out, len(titles))


def _read(corpus: Path, ids: Container[str]) -> dict[str, Document]:
    items = read_corpus(corpus)
    return {item.id: item for item in items if isinstance(item, Document) and item.id in ids}


def _find_mentions(documents: Mapping[str, Document], titles: TitleMatcher) -> dict[str, _Text]:
    found = {}
    for name, document in documents.items():
        title = title_words(document.title)
        named = frozenset(named_titles(words_of(document.text), titles))
        found[name] = _Text(title_term(title) if title else "", named)
    return found


def _mention(text: _Text, other: _Text) -> bool:
    if text is other:  # a query that is judged for itself
        return False
    return text.title in other.named or other.title in text.named


def _without(qrels: Qrels, left_out: Mapping[str, frozenset[str]]) -> Qrels:
    kept = {
        query: {
            document: relevance
            for document, relevance in relevances.items()
            if document not in left_out.get(query, ())
        }
        for query, relevances in qrels.items()
    }
    return {
        query: some
        for query, some in kept.items()
        if any(relevance > 0 for relevance in some.values())
    }


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
        unique: by document, the term of its title, where no other document has the same.
    """

    titles: TitleMatcher
    unique: Mapping[str, str]

    def __call__(self, document: Document) -> tuple[str, int]:
        """Mask each mention of another document's title in a text.

        A mention is a run of words as the lexical index finds it, with all that is between them;
        mentions that overlap become one. The document's own title stays, but for words of it that
        are the title of another document.

        Returns:
            The text and the number of masks in it. It names no title of another document.
        """
        text, title = document.text, self.unique.get(document.id, "")
        masks = 0
        # Words that a mask has brought together can be a title, since it is no word.
        while spans := list(_joined(self._find(text, title))):
            pieces, done = [], 0
            for begin, end in spans:
                pieces += [text[done:begin], MASK]
                done = end
            text = "".join([*pieces, text[done:]])
            masks += len(spans)
        return text, masks

    def _find(self, text: str, title: str) -> list[tuple[int, int]]:
        words = words_of(text)
        runs = [
            (start, start + length - 1)
            for length, starts, _ in self.titles.find(hash_words(words))
            for start in starts.tolist()
            if title_term(words[start : start + length]) != title
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
    unique = {name: term for name, term in terms.items() if having[term] == 1}
    return TitleMask(known_titles(titles.values()), unique)


def write_masked_files(
    files: Sequence[Path], mask: TitleMask, folder: Path, progress: Progress
) -> MaskedFiles:
    """Write a corpus, and queries, as JSON Lines with masked texts; titles stay as they are.

    A query is no document of the corpus, whatever its id is: no title in it is its own.
    """
    written, counts = [], Counter[str]()
    for number, (path, masking) in enumerate(
        zip(files, (mask, replace(mask, unique={})), strict=False)
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
