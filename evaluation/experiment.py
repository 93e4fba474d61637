"""What `longmatch evaluate` measures: the systems of a run, and the tasks they are measured on."""

from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.alignment.space import AlignedBlocks
from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import usable_cores
from encoder.reranker.onnx_reranker import OnnxReranker
from evaluation.baselines import BLOCK_BASELINES, LEXICAL_BASELINES, lexical_baselines
from evaluation.encoded_corpus import EncodedCorpus
from evaluation.judgements import Pair, Qrels, find_pairs
from evaluation.metrics import MEASURES
from evaluation.report import PairTask, Report, RetrievalTask, report_pairs, report_retrieval
from evaluation.reranking import PairScorer, reranked_system
from evaluation.systems import (
    HYBRID,
    System,
    corpus_spreads,
    lexical_system,
    search_system,
    vector_system,
)
from index.corpus.reader import read_documents
from index.document import Document
from index.embed import EmbeddedCorpus
from index.search.records import Mode
from index.search.score import read_fusion

VECTOR, SEMANTIC, UNALIGNED = "vector", "semantic", "unaligned hybrid"
RERANKED = "reranked"


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of the corpus and of the queries.

    Attributes:
        corpus: N documents.
        queries: the same object as `corpus` if the queries are documents of the corpus.
    """

    corpus: EmbeddedCorpus
    queries: EmbeddedCorpus

    @property
    def first_query(self) -> int:
        """Row of the first query, in the row numbers of a system."""
        return 0 if self.queries is self.corpus else len(self.corpus.ids)

    @property
    def all_vectors(self) -> Float32:
        """Vectors of all rows: of the documents, then of queries that are no documents."""
        if self.queries is self.corpus:
            return self.corpus.vectors
        return np.concatenate([self.corpus.vectors, self.queries.vectors])

    @property
    def all_blocks(self) -> Sequence[AlignedBlocks] | None:
        """Aligned blocks of all rows; None if block vectors were not kept."""
        corpus, queries = self.corpus.aligned, self.queries.aligned
        if corpus is None or queries is None:
            return None
        return corpus if queries is corpus else [*corpus, *queries]


def longmatch_systems(
    vectors: Vectors,
    checkpoint: Checkpoint,
    mode: Mode,
    files: Sequence[Path],
) -> Iterator[System]:
    """Make the systems of Longmatch itself: of the mode, and what it combines.

    `VECTOR` and `UNALIGNED` are the first stages of semantic and hybrid mode.
    """
    settings = f"document vectors of {checkpoint.name}"
    number = len(vectors.corpus.ids)
    blocks = vectors.all_blocks
    vector = vector_system(VECTOR, settings, vectors.all_vectors, number)
    yield vector
    documents = _all_documents(vectors, files) if mode != SEMANTIC else []
    texts = [document.text for document in documents]
    titles = [document.title for document in documents]
    lexical = None if mode == SEMANTIC else lexical_system(texts, titles, number)
    spreads = corpus_spreads(vector, lexical, blocks, number)
    rule = read_fusion(checkpoint).resolve(spreads)
    if mode != "lexical":
        yield search_system(vector, None, blocks, rule, SEMANTIC)
    if lexical is not None:
        yield lexical
        if mode == "hybrid":
            yield search_system(vector, lexical, None, rule, UNALIGNED)
            yield search_system(vector, lexical, blocks, rule, HYBRID)


def rerank_longmatch_system(
    system: System, vectors: Vectors, files: Sequence[Path], reranker: OnnxReranker, candidates: int
) -> System:
    """Make the system that reranks the first candidates of one of `longmatch_systems`."""
    scorer = PairScorer(reranker, _all_texts(vectors, files, titled=True), threads=usable_cores())
    mixture = reranker.rule.weights_of(system.name)
    return reranked_system(system, scorer, mixture, candidates, RERANKED)


def baseline_systems(
    names: Sequence[str], vectors: Vectors, files: Sequence[Path], blocks: EncodedCorpus | None
) -> Iterator[System]:
    """Make the named baselines."""
    if any(name in LEXICAL_BASELINES for name in names):
        yield from lexical_baselines(names, _all_texts(vectors, files), len(vectors.corpus.ids))
    if blocks is not None:
        yield from (make(blocks) for name, make in BLOCK_BASELINES.items() if name in names)


def _all_documents(vectors: Vectors, files: Sequence[Path]) -> list[Document]:
    documents = read_documents(files[0], vectors.corpus.ids)
    for queries in files[1:]:
        documents += read_documents(queries, vectors.queries.ids)
    return documents


def _all_texts(vectors: Vectors, files: Sequence[Path], *, titled: bool = False) -> list[str]:
    documents = _all_documents(vectors, files)
    return [document.titled_text if titled else document.text for document in documents]


@dataclass(frozen=True, slots=True)
class Judgements:
    """What systems are measured against.

    Attributes:
        qrels: judgements; empty if retrieval is not measured.
        query_ids: ids of the queries to measure.
        pairs: labelled pairs; empty if pair classification is not measured.
        valid: other pairs, to choose thresholds on; may be empty.
        reference: name of the system that the others are compared with.
    """

    qrels: Qrels
    query_ids: Collection[str]
    pairs: list[Pair]
    valid: list[Pair]
    reference: str


def retrieval_task(vectors: Vectors, qrels: Qrels, chosen: Container[str]) -> RetrievalTask:
    """Make the retrieval task of the chosen queries that have judgements."""
    names = vectors.queries.ids
    rows = [row for row, name in enumerate(names) if name in chosen and name in qrels]
    return RetrievalTask(
        ids=vectors.corpus.ids,
        query_ids=tuple(names[row] for row in rows),
        rows=np.array(rows, dtype=np.int64) + vectors.first_query,
        tokens=vectors.queries.tokens[rows],
        qrels=qrels,
    )


def pair_task(corpus: EmbeddedCorpus, pairs: list[Pair], valid: list[Pair]) -> PairTask:
    """Make the task of classifying pairs."""
    found = find_pairs(pairs, corpus.ids)
    tokens: Int64 = np.maximum(corpus.tokens[found.sources], corpus.tokens[found.targets])
    return PairTask(found, find_pairs(valid, corpus.ids) if valid else None, tokens)


def measure_systems(systems: Sequence[System], vectors: Vectors, judgements: Judgements) -> Report:
    """Measure every system on the tasks that there are judgements for."""
    report: Report = {}
    models = {system.name: [system] for system in systems}
    if judgements.qrels:
        chosen = judgements.query_ids
        task = retrieval_task(vectors, judgements.qrels, chosen)
        found = report_retrieval(models, task, judgements.reference)
        of_vector = found["systems"][VECTOR]
        missing = sum(query in judgements.qrels for query in chosen) - len(task.query_ids)
        report |= {
            "queries": len(task.query_ids),
            "queries_missing": missing,
            **{measure: of_vector[measure]["value"] for measure in MEASURES},
            "retrieval": found,
        }
    if judgements.pairs:
        pairs = pair_task(vectors.corpus, judgements.pairs, judgements.valid)
        report["pairs"] = report_pairs(models, pairs, judgements.reference)
    return report
