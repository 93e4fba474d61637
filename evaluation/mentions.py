"""Measure without mentions: judged pairs of which one text names the title of the other.

A judgement that was made from a link may be a mere mention: "as in World War II" links an article
with that of the war, whatever the rest of it is about. A system that looks for titles in texts
finds such pairs by the mention alone, so how well it finds documents on the same subject has to be
measured on the others.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from encoder.terms.segmentation import words_of
from encoder.terms.title_matcher import TitleMatcher
from evaluation.judgements import Qrels
from index.corpus.reader import read_corpus
from index.document import Document
from index.lexical.terms import known_titles, named_titles, title_term, title_words


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
