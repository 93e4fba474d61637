"""`longmatch lab make-corpus`: documents that name or link to one another become a corpus.

A link never crosses the splits: the part of a document is chosen by a hash of its text, and a link
between two parts is left out. The names of linked documents are removed from texts, so that
training cannot learn to look for them.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from encoder.sentences import split_sentences
from encoder.terms.segmentation import words_of
from evaluation.judgements import PARTS
from training.sources.corpus_folder import (
    new_folder,
    unit_hash,
    write_counts,
    write_judgements,
    write_records,
    write_splits,
)

MAX_NAMED = 50  # a document that more others link to says little about them: it is no target

MaskUnit = Literal["name", "sentence"]
Span = tuple[int, int]
Link = tuple[str, str]  # two ids, the smaller one first


class Mention(NamedTuple):
    """The characters [start, end) of a text, which name the document `target`."""

    start: int
    end: int
    target: str


@dataclass(frozen=True, slots=True)
class LinkedDocument:
    """A document as a source gives it.

    Attributes:
        id: unique in the source.
        title: on one line.
        text: complete, with the names of other documents.
        links: ids that it links to; some may not exist.
        mentions: in the order of the text, none within another.
        metadata: kept in the corpus.
    """

    id: str
    title: str
    text: str
    links: frozenset[str]
    mentions: tuple[Mention, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How a corpus is made of a source.

    Attributes:
        min_words: shorter documents are left out.
        mask_titles: the share of a document's links whose names are removed from its text.
        held_out: the share of documents for validation, and as many for testing.
    """

    min_words: int = 300
    mask_titles: float = 0.5
    held_out: float = 0.05


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents of a corpus, with what was left out.

    Attributes:
        documents: in the order of the source; each has a link.
        parts: train, valid or test, by id.
        links: between documents of one part.
        left_out: how many documents and links were left out, by reason.
    """

    documents: tuple[LinkedDocument, ...]
    parts: Mapping[str, str]
    links: frozenset[Link]
    left_out: Mapping[str, int]


def without_overlaps(mentions: list[Mention]) -> tuple[Mention, ...]:
    """Return mentions in the order of the text; of overlapping ones the longest remains."""
    kept: list[Mention] = []
    for mention in sorted(mentions, key=lambda each: (each.start, -each.end)):
        if kept and mention.start < kept[-1].end:
            if mention.end - mention.start > kept[-1].end - kept[-1].start:
                kept[-1] = mention
        else:
            kept.append(mention)
    return tuple(kept)


def select(documents: Sequence[LinkedDocument], options: CorpusOptions) -> Selection:
    """Choose the documents and links of a corpus; `options.mask_titles` is not used."""
    left_out: Counter[str] = Counter()
    known = {each.id: each for each in _usable(documents, options.min_words, left_out)}
    parts = choose_parts(list(known.values()), options.held_out)
    links: set[Link] = set()
    for source, target in _links(known, left_out):
        if parts[source] == parts[target]:
            links.add((min(source, target), max(source, target)))
        else:
            left_out["links across splits"] += 1
    every = Selection(tuple(known.values()), parts, frozenset(links), left_out)
    return without(every, (), "")


def without(selection: Selection, removed: Iterable[str], reason: str) -> Selection:
    """Return a selection without some documents, and without those that then have no link."""
    gone = set(removed)
    links = frozenset(link for link in selection.links if gone.isdisjoint(link))
    linked = {end for link in links for end in link}
    left_out = Counter(selection.left_out)
    if gone:
        left_out[reason] += len(gone)
    left_out["documents without a link"] += len(selection.parts.keys() - linked - gone)
    return Selection(
        tuple(document for document in selection.documents if document.id in linked),
        {name: part for name, part in selection.parts.items() if name in linked},
        links,
        left_out,
    )


def choose_parts(documents: Sequence[LinkedDocument], held_out: float) -> dict[str, str]:
    """Return the part of each document.

    The share of the texts whose hashes come first is for validation, the next is for testing.
    """
    order = sorted({each.text for each in documents}, key=lambda text: unit_hash(f"split {text}"))
    number = round(held_out * len(order))
    train, valid, test = PARTS
    part_of = dict.fromkeys(order[:number], valid) | dict.fromkeys(order[number : 2 * number], test)
    return {each.id: part_of.get(each.text, train) for each in documents}


def write_corpus(
    output: Path, selection: Selection, options: CorpusOptions, unit: MaskUnit
) -> dict[str, Any]:
    """Write corpus.jsonl.gz, qrels.tsv, splits.tsv and counts.json into a new folder.

    The folder appears complete or not at all. The same selection and options give the same bytes.

    Args:
        options: for masks; a text that masks make too short is left out.

    Returns:
        What counts.json holds.
    """
    selection, texts = _masked_texts(selection, options, unit)
    counts = _count(selection, texts)
    both = sorted({*selection.links, *((b, a) for a, b in selection.links)})
    with new_folder(output) as folder:
        write_records(folder / "corpus.jsonl.gz", _records(selection, texts))
        write_splits(folder, selection.parts)
        write_judgements(folder, ((query, document, 1) for query, document in both))
        write_counts(folder, counts)
    return counts


def mask_names(
    document: LinkedDocument, linked: Collection[str], share: float, unit: MaskUnit
) -> str:
    """Return the text of a document without the names of some documents that it is linked with.

    Args:
        linked: ids of those whose names may be removed.
        share: of the links; each is drawn by a hash of both ids, so that the draw of a link does
            not depend on the others. All mentions of a drawn document are removed.
        unit: what is removed: the name, or the whole sentence.
    """
    drawn = {name for name in linked if unit_hash(f"mask {document.id} {name}") < share}
    spans = [(m.start, m.end) for m in document.mentions if m.target in drawn]
    if unit == "sentence" and spans:
        spans = list(_sentences_of(document.text, spans))
    return _remove_spans(document.text, spans)


def _usable(
    documents: Sequence[LinkedDocument], min_words: int, left_out: Counter[str]
) -> Iterable[LinkedDocument]:
    """Yield documents that are long enough, the first of equal texts."""
    seen: set[str] = set()
    for document in documents:
        if len(words_of(document.text)) < min_words:
            left_out["documents too short"] += 1
        elif document.text in seen:
            left_out["documents repeated"] += 1
        else:
            seen.add(document.text)
            yield document


def _links(known: Mapping[str, LinkedDocument], left_out: Counter[str]) -> list[Link]:
    """Return (source, target) of each link between known documents, without popular targets."""
    found = [
        (document.id, target)
        for document in known.values()
        for target in sorted(document.links & known.keys() - {document.id})
    ]
    named = Counter(target for _, target in found)
    kept = [link for link in found if named[link[1]] <= MAX_NAMED]
    left_out["targets named too often"] = sum(count > MAX_NAMED for count in named.values())
    left_out["links to these targets"] = len(found) - len(kept)
    return kept


def _count(selection: Selection, texts: Mapping[str, str]) -> dict[str, Any]:
    """Count documents, words and links of a corpus, by part, and what is missing."""
    parts = Counter(selection.parts.values())
    links = Counter(selection.parts[a] for a, _ in selection.links)
    return {
        "documents": len(selection.documents),
        "words": sum(len(words_of(text)) for text in texts.values()),
        "links": len(selection.links),
        "documents of parts": {part: parts[part] for part in PARTS},
        "links of parts": {part: links[part] for part in PARTS},
        "left out": dict(selection.left_out),
    }


def _masked_texts(
    selection: Selection, options: CorpusOptions, unit: MaskUnit
) -> tuple[Selection, dict[str, str]]:
    linked: dict[str, list[str]] = {}
    for a, b in selection.links:
        linked.setdefault(a, []).append(b)
        linked.setdefault(b, []).append(a)
    texts = {
        document.id: mask_names(document, linked[document.id], options.mask_titles, unit)
        for document in selection.documents
    }
    short = [name for name, text in texts.items() if len(words_of(text)) < options.min_words]
    rest = without(selection, short, "documents too short without the masked names")
    return rest, {name: texts[name] for name in rest.parts}


def _records(selection: Selection, texts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for document in selection.documents:
        fields = {"id": document.id, "title": document.title, "text": texts[document.id]}
        yield fields | {"metadata": dict(document.metadata)}


def _remove_spans(text: str, spans: Sequence[Span]) -> str:
    """Return a text without some of its characters, and without the spaces that would be doubled.

    Args:
        spans: (start, end) of characters, ascending, none overlapping.
    """
    pieces = []
    begin = 0
    for start, end in spans:
        pieces.append(text[begin:start])
        after_space = start == 0 or text[start - 1].isspace()
        while after_space and end < len(text) and text[end] in " \t":
            end += 1
        begin = end
    return "".join([*pieces, text[begin:]])


def _sentences_of(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the sentences that the spans, ascending, lie in; one over two sentences takes both."""
    sentences = list(split_sentences(text))
    starts = [start for start, _ in sentences]
    done = -1
    for start, end in spans:
        first = max(bisect_right(starts, start) - 1, done + 1, 0)
        for place in range(first, bisect_right(starts, end - 1)):
            yield sentences[place]
            done = place
