"""Training corpora: rows, links and pairs, checked for data leakage."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
class TrainingCorpus:
    """A corpus of N documents as training sees it; of the test part only the documents.

    Attributes:
        files: its source.
        encoded: blocks and block vectors.
        parts: Int64[N], TRAIN, VALID, TEST or LEFT_OUT.
        link_ends: Int64[N], where the links of each document end in `links`.
        links: Int64[L], rows; links of the training part, in both directions.
        pairs: of the training part.
        valid_pairs: of the validation part.
        judgements: of queries of the validation part, over all documents.
        found: counts.
    """

    files: CorpusFiles
    encoded: EncodedCorpus
    parts: Int64
    link_ends: Int64
    links: Int64
    pairs: PairRows
    valid_pairs: PairRows
    judgements: Qrels
    found: Found

    def rows(self, part: int) -> Int64:
        """Return the rows of one part."""
        return np.flatnonzero(self.parts == part)

    def linked(self, row: int) -> Int64:
        """Return the rows that a document of the training part is linked to."""
        start = self.link_ends[row - 1] if row else 0
        return self.links[start : self.link_ends[row]]


def read_training_data(
    corpora: Sequence[tuple[CorpusFiles, EncodedCorpus]],
    seed: int = 0,
    *,
    allow_shared: bool = False,
) -> tuple[TrainingCorpus, ...]:
    """Read what is known of the documents of corpora, and check for data leakage.

    Args:
        seed: of the parts of documents to which no file gives one.
        allow_shared: whether training may see documents of held-out pairs, and held-out texts;
            they are counted.
    """
    if not corpora:
        raise CorpusError("there is no corpus to train with")
    read = [_read_files(files, encoded, seed, allow_shared) for files, encoded in corpora]
    known: dict[str, int] = {}
    for (_, encoded), (labelled, _) in zip(corpora, read, strict=True):
        pairs = zip(encoded.hashes, labelled.parts.tolist(), strict=True)
        known |= {h: part for h, part in pairs if part != LEFT_OUT}
    parts = []
    for (files, encoded), (labelled, _) in zip(corpora, read, strict=True):
        some = labelled.parts
        if files.splits is None:  # splits leave documents out on purpose
            some = choose_parts(some, encoded.hashes, known, seed)
        parts.append(some)
    trained = {
        text_hash
        for (_, encoded), some in zip(corpora, parts, strict=True)
        for text_hash, part in zip(encoded.hashes, some.tolist(), strict=True)
        if part == TRAIN
    }
    data = tuple(
        _training_corpus(files, encoded, *of_files, some, trained)
        for (files, encoded), of_files, some in zip(corpora, read, parts, strict=True)
    )
    if not allow_shared:
        check_equal_texts(
            (f"{name!r} of {corpus.files.corpus}", h, part)
            for corpus in data
            for name, h, part in zip(
                corpus.encoded.ids, corpus.encoded.hashes, corpus.parts, strict=True
            )
        )
    if sum(corpus.found.documents["train"] for corpus in data) < 2:
        raise CorpusError("training takes at least two documents in the training part")
    return data


def data_fingerprint(data: Sequence[TrainingCorpus]) -> str:
    """Return the SHA-256, in hex, of all that training reads: a resumed run must see the same."""
    digest = hashlib.sha256()
    for corpus in data:
        digest.update("\n".join([*corpus.encoded.ids, *corpus.encoded.hashes, ""]).encode())
        for array in (corpus.parts, corpus.link_ends, corpus.links):
            digest.update(array.tobytes())
        for pairs in (corpus.pairs, corpus.valid_pairs):
            digest.update(pairs.sources.tobytes() + pairs.targets.tobytes())
            digest.update(pairs.labels.tobytes())
        digest.update(
            repr(sorted((q, sorted(d.items())) for q, d in corpus.judgements.items())).encode()
        )
    return digest.hexdigest()


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


def _read_files(
    files: CorpusFiles, encoded: EncodedCorpus, seed: int, allow_shared: bool
) -> tuple[LabelledPairs, Qrels]:
    if len(encoded.ids) < 2:
        raise CorpusError(f"{files.corpus}: holds one document: training needs others beside it")
    qrels = read_qrels(files.qrels) if files.qrels else {}
    return read_labelled_pairs(files, encoded.ids, seed, allow_shared=allow_shared), qrels


def _training_corpus(
    files: CorpusFiles,
    encoded: EncodedCorpus,
    labelled: LabelledPairs,
    qrels: Qrels,
    parts: Int64,
    trained: set[str],
) -> TrainingCorpus:
    pairs, pairs_unused = place_pairs(labelled, encoded.ids, parts)
    held_out = held_out_edges(pairs)
    edges, judgements, links_unused = _place_links(files, qrels, encoded, parts, held_out)
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    ends = np.cumsum(np.bincount(edges[:, 0], minlength=len(parts)))
    names = [*PARTS, "left out"]
    found = Found(
        corpus=str(files.corpus),
        documents={name: int((parts % len(names) == n).sum()) for n, name in enumerate(names)},
        chosen=not labelled.given,
        links=len(edges) // 2,
        links_unused=links_unused,
        queries=len(judgements),
        pairs={
            PARTS[part]: (int(rows.labels.sum()), int((~rows.labels).sum()))
            for part, rows in pairs.items()
            if len(rows.labels)
        },
        pairs_unused=pairs_unused,
        splits_unknown=labelled.splits_unknown,
        texts_seen=count_seen(encoded.hashes, parts, pairs, trained),
    )
    _require_both_labels(files, pairs[TRAIN])
    return TrainingCorpus(
        files=files,
        encoded=encoded,
        parts=parts,
        link_ends=ends.astype(np.int64),
        links=edges[order, 1],
        pairs=pairs[TRAIN],
        valid_pairs=pairs[VALID],
        judgements=judgements,
        found=found,
    )


def _place_links(
    files: CorpusFiles,
    qrels: Qrels,
    encoded: EncodedCorpus,
    parts: Int64,
    held_out: set[tuple[int, int]],
) -> tuple[Int64, Qrels, int]:
    """Return the links of the training part [L, 2] in both directions, judgements, the unused."""
    row_of = {name: row for row, name in enumerate(encoded.ids)}
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
            a, b = row_of.get(query, -1), row_of.get(document, -1)
            inside = min(a, b) >= 0 and a != b and parts[a] == parts[b] == TRAIN
            if not inside or (min(a, b), max(a, b)) in held_out:
                unused += 1
            else:
                edges |= {(a, b), (b, a)}
    return np.array(sorted(edges), dtype=np.int64).reshape(-1, 2), judgements, unused


def _require_both_labels(files: CorpusFiles, pairs: PairRows) -> None:
    if len(pairs.labels) and len(set(pairs.labels.tolist())) == 1:
        label = int(pairs.labels[0])
        raise CorpusError(
            f"{', '.join(map(str, files.pairs))}: all pairs for training have the label {label}: "
            "training on pairs takes similar ones and others; similar ones alone can be given as "
            "links (qrels)"
        )
