"""A training corpus of feedback: judged queries and documents as links, pairs and splits."""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from evaluation.fitting.judged_queries import JudgedQuery, hold_out
from evaluation.judgements import Pair
from index.document import Document
from index.errors import CorpusError
from index.store.document_store import DocumentStore
from training.data.corpus_folder import (
    DataSet,
    new_folder,
    write_corpus,
    write_counts,
    write_learned,
)

MIN_QUERIES = 20  # with a relevant answer
MIN_HELD_OUT = 4  # of them
HELD_OUT = 0.2  # share of the queries
OTHERS = 10_000  # documents without feedback, at most: to learn from, and to search among
_SEED = 0
_BATCH = 128
TRAIN, VALID = "train", "valid"


@dataclass(frozen=True, slots=True)
class _Divided:
    """The documents with feedback by id.

    Attributes:
        texts: SHA-256 of the text of each.
        parts: the part of each.
    """

    texts: Mapping[str, bytes]
    parts: Mapping[str, str]

    @property
    def held_out(self) -> frozenset[bytes]:
        """The texts that training must not see."""
        return frozenset(self.texts[name] for name, part in self.parts.items() if part != TRAIN)


def write_feedback_corpus(
    output: Path, store: DocumentStore, judged: Sequence[JudgedQuery]
) -> dict[str, Any]:
    """Write a corpus with qrels.tsv, splits.tsv, pairs.jsonl and learned.txt into a new folder.

    A text that was asked with becomes a document. Queries are divided so that no text, and no copy
    or version of one, is in two parts; pairs across them are left out, and all pairs where those
    for training would have one label only.

    Args:
        output: must not exist; it appears complete or not at all.

    Returns:
        What counts.json holds.
    """
    divided = _divide(store, judged)
    _require_enough(judged, divided)
    pairs = _pairs(judged, divided)
    both = len({pair.label for pair in pairs if divided.parts[pair.source] == TRAIN}) > 1
    parts = dict(divided.parts)
    content = DataSet(
        _documents(store, judged, divided, parts),
        pairs={"": pairs} if both else {},
        judgements=[
            (_id_of(query), name, grade)
            for query in sorted(judged, key=_id_of)
            for name, grade in sorted(query.grades.items())
        ],
        parts=parts,
    )
    queries = [name for name in map(_id_of, judged) if divided.parts.get(name) == TRAIN]
    with new_folder(output) as folder:
        documents = write_corpus(folder, content)
        write_learned(folder, {divided.texts[name].hex() for name in queries})
        counts = _counts(judged, divided, pairs) | {"documents": documents, "pairs used": both}
        write_counts(folder, counts)
    return counts


def _id_of(query: JudgedQuery) -> str:
    """Return the id of a query in the corpus."""
    if query.document_id is not None:
        return query.document_id
    digest = hashlib.sha256(f"{query.title}\0{query.text}".encode()).hexdigest()
    return f"feedback query {digest[:32]}"


def _divide(store: DocumentStore, judged: Sequence[JudgedQuery]) -> _Divided:
    """Divide queries; an answer that is no query goes to training if one for training has it."""
    part_of: dict[str, str] = {}  # by key
    for query, out in zip(judged, hold_out(judged, HELD_OUT), strict=True):
        part_of[query.key] = VALID if out else TRAIN
    asked = frozenset(part_of)
    for query in judged:
        for key in query.answer_keys.values():
            if key not in asked and part_of.get(key) != TRAIN:
                part_of[key] = part_of[query.key]
    keys = {name: key for query in judged for name, key in query.answer_keys.items()}
    keys |= {_id_of(query): query.key for query in judged}
    texts = {
        _id_of(query): Document(_id_of(query), query.text).content_hash
        for query in judged
        if query.document_id is None
    }
    texts |= store.content_hashes([name for name in keys if name not in texts])
    return _Divided(texts, {name: part_of[keys[name]] for name in sorted(texts)})


def _require_enough(judged: Sequence[JudgedQuery], divided: _Divided) -> None:
    relevant = Counter(divided.parts.get(_id_of(query)) for query in judged if query.relevant)
    for part, least in ((TRAIN, MIN_QUERIES - MIN_HELD_OUT), (VALID, MIN_HELD_OUT)):
        if relevant[part] < least:
            raise CorpusError(
                f"the feedback has {relevant[part]} queries with a relevant match in the part "
                f"{part!r}, and it takes {least}: copies of one text, and queries that are answers "
                "of one another, are not divided"
            )


def _pairs(judged: Sequence[JudgedQuery], divided: _Divided) -> list[Pair]:
    """Return the pairs inside of the parts; of two verdicts on one pair, relevant counts."""
    labels: dict[tuple[str, str], bool] = {}
    for query in judged:
        source = _id_of(query)
        for target, grade in query.grades.items():
            parts = {divided.parts.get(source), divided.parts.get(target)}
            if len(parts) == 1 and None not in parts and source != target:
                ends = (min(source, target), max(source, target))
                labels[ends] = labels.get(ends, False) or grade > 0
    return [Pair(a, b, label) for (a, b), label in sorted(labels.items())]


def _documents(
    store: DocumentStore,
    judged: Sequence[JudgedQuery],
    divided: _Divided,
    parts: dict[str, str],
) -> Iterator[Document]:
    """Yield every document; the parts of those without feedback are added to `parts`."""
    for query in judged:
        if query.document_id is None:
            yield Document(_id_of(query), query.text, query.title)
    answers = sorted(set(divided.texts) - {_id_of(query) for query in judged})
    queries = sorted(query.document_id for query in judged if query.document_id is not None)
    for document in chain(_stored(store, answers), _stored(store, queries)):
        yield replace(document, metadata={})
    held_out = divided.held_out
    families = set(
        store.families.of_ids([name for name, part in parts.items() if part != TRAIN]).values()
    )
    others = _others(store, frozenset(divided.texts))
    family_of = store.families.of_ids(others)
    for document in _stored(store, others):
        seen = document.content_hash in held_out or family_of.get(document.id) in families
        if not seen:
            parts[document.id] = TRAIN
            yield replace(document, metadata={})


def _others(store: DocumentStore, named: frozenset[str]) -> list[str]:
    """Return the ids of some documents without feedback."""
    ids = store.log.added_after(0)[1].tolist()
    if len(ids) > OTHERS + len(named):
        ids = random.Random(_SEED).sample(ids, OTHERS + len(named))  # noqa: S311  no secret
    found = (
        document.id
        for start in range(0, len(ids), _BATCH)
        for document in store.get(ids[start : start + _BATCH]).values()
    )
    return [name for name in found if name not in named][:OTHERS]


def _stored(store: DocumentStore, names: Sequence[str]) -> Iterator[Document]:
    for start in range(0, len(names), _BATCH):
        found = store.find(names[start : start + _BATCH])
        yield from (record.document for record in found.values())


def _counts(
    judged: Sequence[JudgedQuery], divided: _Divided, pairs: Sequence[Pair]
) -> dict[str, Any]:
    queries = Counter(divided.parts.get(_id_of(query)) for query in judged)
    labels = Counter((divided.parts[pair.source], pair.label) for pair in pairs)
    return {
        "documents with feedback": len(divided.parts),
        "queries": {part: queries[part] for part in (TRAIN, VALID)},
        "pairs": {
            part: {"relevant": labels[part, True], "not relevant": labels[part, False]}
            for part in (TRAIN, VALID)
        },
    }
