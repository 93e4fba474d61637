"""A corpus as the training of a reranker reads it: texts, links and labelled pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Int64
from evaluation.judgements import PARTS, PairRows, Qrels, read_pairs, read_qrels
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from training.data.files import CorpusFiles, part_in_name
from training.data.pair_files import count_seen, place_pairs, read_labelled_pairs
from training.data.splits import LEFT_OUT, TRAIN, VALID, check_equal_texts, choose_parts

ONE_LABEL = 'the recipe has pairs = "given", and not pairs of both labels are for training'


@dataclass(frozen=True, slots=True)
class RerankCorpus:
    """One corpus of N documents.

    Attributes:
        files: where it came from.
        ids: N document ids.
        texts: N texts, by whose words neighbours are found.
        readings: N texts with their titles, as they are read.
        hashes: N SHA-256 of the texts, in hex.
        parts: Int64[N], TRAIN, VALID, TEST or LEFT_OUT.
        qrels: its links, as judgements whose queries are documents; empty where it has none.
        pairs: labelled pairs by part.
        texts_seen: held-out texts that training sees too; 0 unless shared documents are allowed.
    """

    files: CorpusFiles
    ids: tuple[str, ...]
    texts: tuple[str, ...]
    readings: tuple[str, ...]
    hashes: tuple[str, ...]
    parts: Int64
    qrels: Qrels
    pairs: Mapping[int, PairRows]
    texts_seen: int

    def valid_queries(self) -> Int64:
        """Return the rows of the validation part that have links."""
        rows = np.flatnonzero(self.parts == VALID).tolist()
        return np.array([row for row in rows if self.ids[row] in self.qrels], dtype=np.int64)

    def has_valid_pairs(self) -> bool:
        """Whether there are validation pairs of both labels."""
        labels = self.pairs[VALID].labels
        return bool(labels.any() and not labels.all())


def read_rerank_corpus(
    files: CorpusFiles, seed: int = 0, *, allow_shared: bool = False
) -> RerankCorpus:
    """Read a corpus with its links, labelled pairs and parts.

    Args:
        files: of the corpus.
        seed: of the parts of documents to which no file gives one.
        allow_shared: whether training may see documents of held-out pairs, and held-out texts.

    Raises:
        CorpusError: a file cannot be read or does not fit, or a document or a text is both for
            training and held out, and that is not allowed.
    """
    documents = [item for item in read_corpus(files.corpus) if isinstance(item, Document)]
    ids = tuple(document.id for document in documents)
    hashes = tuple(document.content_hash.hex() for document in documents)
    labelled = read_labelled_pairs(files, ids, seed, allow_shared=allow_shared)
    parts = labelled.parts
    if files.splits is None:
        given = zip(hashes, parts.tolist(), strict=True)
        known = {text_hash: part for text_hash, part in given if part != LEFT_OUT}
        parts = choose_parts(parts, hashes, known, seed)
    if not allow_shared:
        check_equal_texts(
            (f"{name!r} of {files.corpus}", h, part)
            for name, h, part in zip(ids, hashes, parts.tolist(), strict=True)
        )
    pairs, _ = place_pairs(labelled, ids, parts)
    trained = {hashes[row] for row in np.flatnonzero(parts == TRAIN)}
    return RerankCorpus(
        files=files,
        ids=ids,
        texts=tuple(document.text for document in documents),
        readings=tuple(document.titled_text for document in documents),
        hashes=hashes,
        parts=parts,
        qrels=read_qrels(files.qrels) if files.qrels else {},
        pairs=pairs,
        texts_seen=count_seen(hashes, parts, pairs, trained),
    )


def check_rerank_files(corpora: Sequence[CorpusFiles], *, given: bool = False) -> None:
    """Check that corpora may have what a reranker learns from, without reading their documents.

    Args:
        corpora: with their files.
        given: whether it learns from labelled pairs alone.

    Raises:
        CorpusError: a corpus has neither links nor a matching pair for training, or not the pairs
            that are to be learned from alone; or nothing of any corpus can be for validation.
    """
    for files in corpora:
        if given and len(_labels(files, TRAIN)) < 2:
            raise CorpusError(f"{files.corpus}: {ONE_LABEL}")
        if not files.qrels and not files.pairs:
            raise CorpusError(
                f"{files.corpus}: a reranker learns from links, in a file qrels.tsv, or from "
                "labelled pairs, in files pairs.train.jsonl and pairs.valid.jsonl"
            )
        if not files.qrels and True not in _labels(files, TRAIN):
            raise CorpusError(
                f"{files.corpus}: there are no links, and no pair for training has the label 1"
            )
    if not any(files.qrels or _labels(files, VALID) == {True, False} for files in corpora):
        raise CorpusError(
            f"{', '.join(str(files.corpus) for files in corpora)}: validation takes links, or "
            "pairs of both labels, in a file pairs.valid.jsonl"
        )


def _labels(files: CorpusFiles, part: int) -> set[bool]:
    """Return the labels of the pairs that may be of a part."""
    may_be = [path for path in files.pairs if part_in_name(path) in (None, PARTS[part])]
    return {pair.label for path in may_be for pair in read_pairs(path)}
