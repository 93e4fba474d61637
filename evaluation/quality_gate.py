"""The quality gate of exports: how much of fp32's rankings int8 and fp16 keep, on a sample."""

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.checkpoint import BLOCK_GRAPH, DOCUMENT_GRAPH, QUALITY, Checkpoint
from encoder.errors import QualityError
from encoder.opening import open_encoder
from evaluation.judgements import Qrels
from evaluation.metrics import evaluate_run, rank_exactly
from index.build import encode_documents
from index.corpus.demo import write_stdlib_corpus
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress

NEIGHBOURS = 10
DOCUMENTS = 300  # a minute of fp32 for each 600 thousand tokens on two cores
_DOCUMENTS_PER_CALL = 16
MINIMUM_NEIGHBOURS = 0.98  # share of the 10 nearest neighbours of fp32 that must stay
MAXIMUM_NDCG_LOSS = 0.005  # of nDCG@10, relative to fp32
_TIE = 1e-6  # cosines closer than this are equal


@dataclass(frozen=True, slots=True)
class Quality:
    """How one precision compares with fp32 over a sample of documents.

    Attributes:
        corpus: name of the sampled corpus.
        corpus_documents: how many documents it has.
        documents: how many of them were compared.
        tokens: how many tokens of those were read.
        seed: of the sample.
        neighbours: share of the 10 nearest neighbours of fp32 that are among its own 10.
        queries: how many have judgements; 0 where the corpus has none.
        ndcg: nDCG@10 over them; None where there are none.
        ndcg_fp32: the same of fp32.
    """

    corpus: str
    corpus_documents: int
    documents: int
    tokens: int
    seed: int
    neighbours: float
    queries: int = 0
    ndcg: float | None = None
    ndcg_fp32: float | None = None

    @property
    def ndcg_loss(self) -> float | None:
        """Loss of nDCG@10 relative to fp32, under 0 for a gain; None without judgements."""
        if self.ndcg is None or self.ndcg_fp32 is None:
            return None
        return 1 - self.ndcg / self.ndcg_fp32 if self.ndcg_fp32 else 0.0


def check_quality(quality: Quality, precision: str) -> None:
    """Check that a precision loses no more than the gate allows."""
    where = f"{precision}/{BLOCK_GRAPH} and {DOCUMENT_GRAPH} on {quality.documents} documents"
    where = f"{where} of {quality.corpus}"
    # "not >=" also refuses NaN
    if not quality.neighbours >= MINIMUM_NEIGHBOURS:
        raise QualityError(
            f"{where}: {quality.neighbours:.2%} of the 10 nearest neighbours of fp32 are kept, "
            f"under {MINIMUM_NEIGHBOURS:.0%}"
        )
    loss = quality.ndcg_loss
    if loss is not None and not loss <= MAXIMUM_NDCG_LOSS:
        raise QualityError(
            f"{where}: nDCG@10 is {quality.ndcg:.4f} and that of fp32 {quality.ndcg_fp32:.4f}, "
            f"a loss of {loss:.2%}, over {MAXIMUM_NDCG_LOSS:.1%}"
        )


def write_quality(directory: Path, qualities: Mapping[str, Quality]) -> None:
    """Write the figures of some precisions into `quality.json`; those of others stay."""
    limits = {"neighbours": MINIMUM_NEIGHBOURS, "ndcg_loss": MAXIMUM_NDCG_LOSS}
    figures = {
        precision: {**asdict(quality), "ndcg_loss": quality.ndcg_loss, "limits": limits}
        for precision, quality in qualities.items()
    }
    add_to_report(directory / QUALITY, figures)


def add_to_report(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures of some precisions into a JSON report; those of others stay."""
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(report | figures, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, slots=True)
class GateSample:
    """The documents that precisions are compared on.

    Attributes:
        corpus: name of the corpus.
        corpus_documents: number of its documents.
        documents: the sample, in the order of the corpus.
        qrels: judgements of the queries in the sample, which has all their judged documents.
        seed: of the sample.
    """

    corpus: str
    corpus_documents: int
    documents: tuple[Document, ...]
    qrels: Qrels
    seed: int


def sample_stdlib(limit: int = DOCUMENTS, seed: int = 0) -> GateSample:
    """Sample the documentation that ships with Python, which has no judgements."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "python-stdlib.jsonl"
        write_stdlib_corpus(path)
        return sample_corpus(path, {}, limit=limit, seed=seed)


def sample_corpus(corpus: Path, qrels: Qrels, *, limit: int, seed: int = 0) -> GateSample:
    """Sample at most `limit` documents of a corpus, by a seed.

    A query, which is a document of the corpus too, is included with all its judged documents or not
    at all; other documents fill up the sample.

    Raises:
        CorpusError: the corpus cannot be read or is too small, or no query fits into `limit`.
    """
    ids = [item.id for item in read_corpus(corpus) if isinstance(item, Document)]
    generator = random.Random(seed)  # noqa: S311  a sample, not a secret
    queries, chosen = _choose_queries(set(ids), qrels, limit, generator)
    if qrels and not queries:
        raise CorpusError(
            f"{corpus}: no query is one of its documents and fits with its judged documents into "
            f"{limit} documents: are these its judgements, or is the limit too small?"
        )
    others = [name for name in ids if name not in chosen]
    chosen.update(generator.sample(others, min(len(others), limit - len(chosen))))
    _require_enough(len(chosen), str(corpus))
    items = (item for item in read_corpus(corpus) if isinstance(item, Document))
    return GateSample(
        corpus=corpus.name,
        corpus_documents=len(ids),
        documents=tuple(item for item in items if item.id in chosen),
        qrels={query: qrels[query] for query in queries},
        seed=seed,
    )


def measure_quality(
    checkpoint: Checkpoint, precisions: Sequence[str], sample: GateSample, progress: Progress
) -> dict[str, Quality]:
    """Compare precisions of a checkpoint with its fp32 on a CPU."""
    exact = _encode(checkpoint, "fp32", sample, progress)
    ndcg_fp32 = _ndcg(exact, sample.qrels)
    qualities = {}
    for precision in precisions:
        found = _encode(checkpoint, precision, sample, progress)
        qualities[precision] = Quality(
            corpus=sample.corpus,
            corpus_documents=sample.corpus_documents,
            documents=len(found.ids),
            tokens=found.tokens,
            seed=sample.seed,
            neighbours=neighbours_kept(exact.vectors, found.vectors),
            queries=len(sample.qrels),
            ndcg=_ndcg(found, sample.qrels),
            ndcg_fp32=ndcg_fp32,
        )
    return qualities


def neighbours_kept(exact: Float32, found: Float32, k: int = NEIGHBOURS) -> float:
    """Return the share of the k nearest neighbours in one space that are also nearest in another.

    Neighbours are compared by cosine, so that it does not matter which of equal ones is found.

    Args:
        exact: Float32[N, dimension], unit norm.
        found: Float32[N, dimension], the same documents.
        k: neighbours, fewer than N.
    """
    cosines, others = exact @ exact.T, found @ found.T  # [N, N]
    np.fill_diagonal(cosines, -np.inf)
    np.fill_diagonal(others, -np.inf)
    worst = np.partition(cosines, -k, axis=1)[:, -k, None] - _TIE  # [N, 1]
    chosen = np.argsort(-others, axis=1, kind="stable")[:, :k]
    return float((np.take_along_axis(cosines, chosen, axis=1) >= worst).mean())


@dataclass(frozen=True, slots=True)
class _Encoded:
    ids: tuple[str, ...]
    vectors: Float32
    tokens: int


def _encode(
    checkpoint: Checkpoint, precision: str, sample: GateSample, progress: Progress
) -> _Encoded:
    encoder = open_encoder(checkpoint, precision=precision, providers=["cpu"])
    progress.started(f"encoding with {precision}", len(sample.documents))
    encoded = []
    for start in range(0, len(sample.documents), _DOCUMENTS_PER_CALL):
        some = sample.documents[start : start + _DOCUMENTS_PER_CALL]
        encoded += encode_documents(some, encoder, progress)
    _require_enough(len(encoded), sample.corpus)
    return _Encoded(
        ids=tuple(result.document.id for result in encoded),
        vectors=np.stack([result.vector for result in encoded]),
        tokens=sum(result.receipt.tokens_read for result in encoded),
    )


def _ndcg(encoded: _Encoded, qrels: Qrels) -> float | None:
    rows = [row for row, name in enumerate(encoded.ids) if name in qrels]
    if not rows:
        return None
    query_ids = [encoded.ids[row] for row in rows]
    run = rank_exactly(encoded.ids, encoded.vectors, query_ids, encoded.vectors[rows])
    return evaluate_run(run, encoded.ids, qrels)["nDCG@10"]


def _require_enough(documents: int, corpus: str) -> None:
    if documents < NEIGHBOURS + 2:
        raise CorpusError(
            f"{corpus}: {documents} documents are too few to compare {NEIGHBOURS} neighbours: "
            f"it takes {NEIGHBOURS + 2}"
        )


def _choose_queries(
    ids: set[str], qrels: Qrels, limit: int, generator: random.Random
) -> tuple[list[str], set[str]]:
    """Return queries that fit into the limit, and all documents they need."""
    chosen: set[str] = set()
    queries = []
    candidates = sorted(query for query in qrels if query in ids)
    for query in generator.sample(candidates, len(candidates)):
        needed = {query, *(name for name in qrels[query] if name in ids)}
        if len(needed) > 1 and len(chosen | needed) <= limit:
            queries.append(query)
            chosen |= needed
    return queries, chosen
