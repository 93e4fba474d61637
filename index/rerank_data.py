"""The pairs a reranker learns from, filtered and tokenised once and kept."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.noise_filter import ReadText
from encoder.pair_reader import PairReader
from encoder.pair_table import (
    LabelledPair,
    PairTable,
    join_tables,
    make_pair_table,
    read_pair_table,
    write_pair_table,
)
from encoder.reranker_checkpoint import RerankerCheckpoint
from index.observer import Observer
from index.rerank_pairs import PairKinds, RerankCorpus, RowPair, training_pairs, validation_pairs

_PAIRS_A_STEP = 64
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class RerankData:
    """Pairs to train on, and candidates of validation queries; see `PairTable`."""

    training: PairTable
    validation: PairTable


def prepare_rerank_data(
    corpora: Sequence[RerankCorpus],
    checkpoint: RerankerCheckpoint,
    kinds: PairKinds,
    work: Path,
    observer: Observer,
) -> RerankData:
    """Filter and tokenise the pairs of corpora, or read what was made of them before.

    Args:
        corpora: at least one.
        checkpoint: that reads the pairs.
        kinds: of pairs.
        work: where neighbours and tables are kept.
        observer: hears of pairs as of documents.

    Raises:
        CorpusError: an extra is not installed, or a corpus has no link within a part.
    """
    work.mkdir(parents=True, exist_ok=True)
    reader = PairReader(checkpoint)
    tables: list[tuple[PairTable, PairTable]] = []
    for number, corpus in enumerate(corpora):
        key = _key(corpus, checkpoint, kinds)
        paths = [work / f"{key}-{part}.npz" for part in ("train", "valid")]
        if not all(path.exists() for path in paths):
            pairs = training_pairs(corpus, kinds, work / f"{key}-neighbours")
            judged = validation_pairs(corpus, kinds.candidates)
            for path, some in zip(paths, (pairs, judged), strict=True):
                write_pair_table(path, _tokenise(some, corpus, reader, observer))
        train, valid = (read_pair_table(path) for path in paths)
        groups = np.full(len(train), number, dtype=np.int64)
        tables.append(
            (replace(train, groups=groups), replace(valid, groups=valid.groups + number * 100_000))
        )
    training, validation = zip(*tables, strict=True)
    return RerankData(join_tables(training), join_tables(validation))


def rerank_fingerprint(corpora: Sequence[RerankCorpus], checkpoint: RerankerCheckpoint) -> str:
    """Return what names the data and the checkpoint of a run: a resumed one must see the same."""
    keys = [_key(corpus, checkpoint, PairKinds(0)) for corpus in corpora]
    return hashlib.sha256(" ".join([checkpoint.fingerprint, *keys]).encode()).hexdigest()


def _tokenise(
    pairs: Sequence[RowPair], corpus: RerankCorpus, reader: PairReader, observer: Observer
) -> PairTable:
    observer.started("filtering pairs of", len(pairs))
    read: dict[int, ReadText] = {}

    def text(row: int) -> ReadText:
        if row not in read:
            read[row] = reader.read(corpus.readings[row])
        return read[row]

    def made() -> Iterator[LabelledPair]:
        for number, pair in enumerate(pairs, start=1):
            tokens = reader.pair(text(pair.first), text(pair.second))
            yield LabelledPair(tokens, pair.label, pair.group, pair.score)
            if number % _PAIRS_A_STEP == 0:
                observer.advanced(documents=_PAIRS_A_STEP, tokens=_PAIRS_A_STEP * len(tokens))

    return make_pair_table(made())


def _key(corpus: RerankCorpus, checkpoint: RerankerCheckpoint, kinds: PairKinds) -> str:
    """Name what the tables of a corpus hang on."""
    digest = hashlib.sha256()
    tokenizer = checkpoint.files["tokenizer.json"]
    digest.update(f"{_FORMAT} {checkpoint.pair} {tokenizer} {kinds}".encode())
    digest.update(hashlib.sha256("\0".join(corpus.readings).encode()).digest())
    digest.update(" ".join([*corpus.ids, *corpus.hashes]).encode())
    digest.update(corpus.parts.tobytes())
    digest.update(repr(sorted((q, sorted(d.items())) for q, d in corpus.qrels.items())).encode())
    for path in corpus.files.pairs:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
