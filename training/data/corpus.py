"""Training corpora: rows, links and pairs, checked for data leakage."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from encoder.arrays import Int64
from evaluation.encoded_corpus import EncodedCorpus
from evaluation.judgements import PARTS, PairRows, Qrels, read_qrels
from index.errors import CorpusError
from training.data.files import CorpusFiles
from training.data.pair_files import (
    LEFT_OUT,
    TRAIN,
    VALID,
    LabelledPairs,
    check_equal_texts,
    choose_parts,
    count_seen,
    held_out_edges,
    place_pairs,
    read_labelled_pairs,
)

Related = Mapping[int, Int64]  # row -> the rows that it is related to, ascending, at least one
_NO_ROWS: Int64 = np.empty(0, dtype=np.int64)


class Texts(Protocol):
    """The N documents of a corpus, as a model reads them."""

    @property
    def ids(self) -> Sequence[str]:
        """N document ids."""

    @property
    def hashes(self) -> Sequence[str]:
        """N SHA-256 of the texts, in hex."""


T = TypeVar("T", bound=Texts)


@dataclass(frozen=True, slots=True)
class Found:
    """Counts of one corpus.

    Attributes:
        corpus: its path.
        documents: by part, and "left out" where the splits do not name them.
        chosen: whether the parts were chosen here, because no file gives them.
        links: between two documents of the training part; each counts once.
        links_unused: those with another document, those that are held-out pairs, and judgements of
            unknown documents.
        queries: documents of the validation part that have judgements.
        pairs: by part, (similar, not similar).
        pairs_unused: of documents in two parts or in none.
        splits_unknown: documents that the splits name and the corpus does not have.
        texts_seen: held-out texts that training sees too; 0 unless shared documents are allowed.
    """

    corpus: str
    documents: Mapping[str, int]
    chosen: bool
    links: int
    links_unused: int
    queries: int
    pairs: Mapping[str, tuple[int, int]]
    pairs_unused: int
    splits_unknown: int
    texts_seen: int

    def facts(self) -> dict[str, Any]:
        """Return the facts for a report, with the name of the corpus instead of its path."""
        return asdict(self) | {"corpus": Path(self.corpus).name}


@dataclass(frozen=True, slots=True)
class KnownCorpus(Generic[T]):
    """A corpus of N documents as training sees it; of the test part only documents and pairs.

    Attributes:
        files: its source.
        texts: the documents.
        parts: Int64[N], TRAIN, VALID, TEST or LEFT_OUT.
        links: of documents of the training part to others of it, in both directions.
        pairs: labelled pairs by part; those of the test part are only kept out of training.
        judgements: of queries of the validation part, over all documents.
        found: counts.
    """

    files: CorpusFiles
    texts: T
    parts: Int64
    links: Related
    pairs: Mapping[int, PairRows]
    judgements: Qrels
    found: Found

    def rows(self, part: int) -> Int64:
        """Return the rows of one part."""
        return np.flatnonzero(self.parts == part)

    def linked(self, row: int) -> Int64:
        """Return the rows that a document of the training part is linked to."""
        return self.links.get(row, _NO_ROWS)

    def has_valid_pairs(self) -> bool:
        """Whether there are validation pairs of both labels."""
        labels = self.pairs[VALID].labels
        return bool(labels.any() and not labels.all())


TrainingCorpus = KnownCorpus[EncodedCorpus]


def read_training_data(
    corpora: Sequence[tuple[CorpusFiles, T]],
    seed: int = 0,
    *,
    allow_shared: bool = False,
) -> tuple[KnownCorpus[T], ...]:
    """Read what is known of the documents of corpora, and check for data leakage.

    Args:
        seed: of the parts of documents to which no file gives one.
        allow_shared: whether training may see documents of held-out pairs, and held-out texts;
            they are counted.
    """
    if not corpora:
        raise CorpusError("there is no corpus to train with")
    read = [
        (files, texts, read_labelled_pairs(files, seed, allow_shared=allow_shared))
        for files, texts in corpora
    ]
    parts = [_given_parts(*corpus) for corpus in read]
    known = {
        text_hash: part
        for (_, texts), given in zip(corpora, parts, strict=True)
        for text_hash, part in zip(texts.hashes, given.tolist(), strict=True)
        if part != LEFT_OUT
    }
    parts = [  # splits leave documents out on purpose
        given if files.splits else choose_parts(given, texts.hashes, known, seed)
        for (files, texts), given in zip(corpora, parts, strict=True)
    ]
    documents = [
        (f"{name!r} of {files.corpus}", text_hash, part)
        for (files, texts), chosen in zip(corpora, parts, strict=True)
        for name, text_hash, part in zip(texts.ids, texts.hashes, chosen.tolist(), strict=True)
    ]
    if not allow_shared:
        check_equal_texts(documents)
    trained = {text_hash for _, text_hash, part in documents if part == TRAIN}
    data = tuple(
        _known_corpus(*corpus, chosen, trained) for corpus, chosen in zip(read, parts, strict=True)
    )
    if sum(corpus.found.documents["train"] for corpus in data) < 2:
        raise CorpusError("training takes at least two documents in the training part")
    return data


def data_fingerprint(data: Sequence[KnownCorpus[T]]) -> str:
    """Return the SHA-256, in hex, of all that training reads: a resumed run must see the same."""
    digest = hashlib.sha256()
    for corpus in data:
        digest.update("\n".join([*corpus.texts.ids, *corpus.texts.hashes, ""]).encode())
        digest.update(corpus.parts.tobytes())
        links = ((row, others.tolist()) for row, others in corpus.links.items())
        judgements = (
            (query, sorted(judged.items())) for query, judged in corpus.judgements.items()
        )
        digest.update(repr((sorted(links), sorted(judgements))).encode())
        for pairs in corpus.pairs.values():
            digest.update(pairs.sources.tobytes() + pairs.targets.tobytes())
            digest.update(pairs.labels.tobytes())
    return digest.hexdigest()


def relate(edges: Iterable[tuple[int, int]]) -> Related:
    """Return the rows that each row of some edges is paired with, in both directions."""
    found: dict[int, set[int]] = {}
    for a, b in edges:
        found.setdefault(a, set()).add(b)
        found.setdefault(b, set()).add(a)
    return {row: np.array(sorted(found[row]), dtype=np.int64) for row in sorted(found)}


def describe(found: Found) -> str:
    """Return the counts of one corpus as one line."""
    parts = ", ".join(f"{number} {part}" for part, number in found.documents.items() if number)
    said = [f"{found.corpus}: documents: {parts}{' (chosen here)' if found.chosen else ''}"]
    if found.links or found.links_unused or found.queries:
        said.append(
            f"links: {found.links} for training, {found.links_unused} unused, "
            f"{found.queries} queries for validation"
        )
    if found.pairs:
        said.append(
            "pairs: "
            + ", ".join(f"{part} {a} similar and {b} not" for part, (a, b) in found.pairs.items())
            + (f", {found.pairs_unused} unused" if found.pairs_unused else "")
        )
    if found.splits_unknown:
        said.append(f"the splits name {found.splits_unknown} documents that are not there")
    if found.texts_seen:
        said.append(f"training sees {found.texts_seen} held-out texts: validation is optimistic")
    return "; ".join(said)


def _given_parts(files: CorpusFiles, texts: Texts, labelled: LabelledPairs) -> Int64:
    """Return the part [N] that the files give each document; LEFT_OUT where they give none."""
    if len(texts.ids) < 2:
        raise CorpusError(f"{files.corpus}: holds one document: training needs others beside it")
    known = labelled.part_of
    given = [PARTS.index(known[name]) if name in known else LEFT_OUT for name in texts.ids]
    parts = np.array(given, dtype=np.int64)
    if files.splits and (parts == LEFT_OUT).all():
        raise CorpusError(f"{files.splits}: names no document of {files.corpus}")
    return parts


def _known_corpus(
    files: CorpusFiles, texts: T, labelled: LabelledPairs, parts: Int64, trained: set[str]
) -> KnownCorpus[T]:
    pairs, pairs_unused = place_pairs(labelled, texts.ids, parts)
    edges, judgements, links_unused = _place_links(files, texts.ids, parts, held_out_edges(pairs))
    names = [*PARTS, "left out"]
    found = Found(
        corpus=str(files.corpus),
        documents={name: int((parts % len(names) == n).sum()) for n, name in enumerate(names)},
        chosen=not labelled.part_of,
        links=len(edges),
        links_unused=links_unused,
        queries=len(judgements),
        pairs={
            PARTS[part]: (int(rows.labels.sum()), int((~rows.labels).sum()))
            for part, rows in pairs.items()
            if len(rows.labels)
        },
        pairs_unused=pairs_unused,
        splits_unknown=len(labelled.part_of.keys() - set(texts.ids)) if files.splits else 0,
        texts_seen=count_seen(texts.hashes, parts, pairs, trained),
    )
    return KnownCorpus(files, texts, parts, relate(edges), pairs, judgements, found)


def _place_links(
    files: CorpusFiles, ids: Sequence[str], parts: Int64, held_out: set[tuple[int, int]]
) -> tuple[set[tuple[int, int]], Qrels, int]:
    """Return the links of the training part as rows (lower, higher), judgements, the unused."""
    qrels = read_qrels(files.qrels) if files.qrels else {}
    row_of = {name: row for row, name in enumerate(ids)}
    if qrels and not any(query in row_of for query in qrels):
        raise CorpusError(f"{files.qrels}: no query is a document of {files.corpus}")
    edges: set[tuple[int, int]] = set()
    judgements: Qrels = {}
    unused = 0
    for query, judged in qrels.items():
        if query in row_of and parts[row_of[query]] == VALID:
            judgements[query] = judged
            continue
        for document in (name for name, relevance in judged.items() if relevance > 0):
            a, b = sorted((row_of.get(query, -1), row_of.get(document, -1)))
            inside = 0 <= a < b and parts[a] == parts[b] == TRAIN
            if inside and (a, b) not in held_out:
                edges.add((a, b))
            else:
                unused += 1
    return edges, judgements, unused
