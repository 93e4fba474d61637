"""Judged corpora with the systems of all three modes, for the benchmarks of the reranker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.reranker.onnx_reranker import OnnxReranker
from evaluation.judgements import PairRows, Qrels, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.report import RetrievalTask
from evaluation.reranking import PairScorer
from evaluation.systems import System, hybrid_system, lexical_system, vector_system
from index.corpus.reader import read_documents
from index.embed import EmbeddedCorpus, read_embedded_corpus
from index.search.fusion import read_fusion


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """One corpus, its judgements, and the systems of the three modes.

    Attributes:
        folder: with corpus.jsonl.gz, qrels.tsv, splits.tsv and pairs.<part>.jsonl.gz.
        embedded: its document vectors.
        texts: by row, as a reranker reads them: with their titles.
        qrels: judgements.
        systems: by mode.
    """

    folder: Path
    embedded: EmbeddedCorpus
    texts: list[str]
    qrels: Qrels
    systems: Mapping[str, System]

    def task(self, part: str, limit: int | None = None) -> RetrievalTask:
        """Ask for the relevant documents of the judged queries of a part, or of some of them."""
        splits, ids = read_splits(self.folder / "splits.tsv"), self.embedded.ids
        rows = [n for n, name in enumerate(ids) if name in self.qrels and splits.get(name) == part]
        if limit is not None:
            rows = sorted(np.random.default_rng(0).permutation(rows)[:limit].tolist())
        return RetrievalTask(
            ids=ids,
            query_ids=tuple(ids[row] for row in rows),
            rows=np.array(rows, dtype=np.int64),
            tokens=self.embedded.tokens[rows],
            qrels=self.qrels,
        )

    def pairs(self, part: str) -> PairRows:
        """Return the labelled pairs of a part."""
        return find_pairs(read_pairs(self.folder / f"pairs.{part}.jsonl.gz"), self.embedded.ids)


def read_judged_corpus(folder: Path, vectors: Path, checkpoint: Checkpoint) -> JudgedCorpus:
    """Read a corpus and its vectors, as `longmatch embed` wrote them."""
    embedded = read_embedded_corpus(vectors)
    documents = read_documents(folder / "corpus.jsonl.gz", embedded.ids)
    texts = [document.text for document in documents]
    readings = [document.titled_text for document in documents]
    semantic = vector_system("semantic", checkpoint.name, embedded.vectors)
    lexical = remembered(lexical_system(texts, [one.title for one in documents]))
    hybrid = hybrid_system(semantic, lexical, read_fusion(checkpoint))
    systems = {"semantic": semantic, "lexical": lexical, "hybrid": hybrid}
    return JudgedCorpus(folder, embedded, readings, read_qrels(folder / "qrels.tsv"), systems)


def remembered(system: System) -> System:
    """Return a system that scores the rows of a call once, however often it is asked."""
    known: dict[bytes, Float32] = {}

    def score(rows: Int64) -> Float32:
        key = rows.tobytes()
        if key not in known:
            known[key] = system.score(rows)
        return known[key].copy()

    return System(system.name, system.settings, score, system.score_pairs)


def open_pair_scorer(
    corpus: JudgedCorpus, reranker: OnnxReranker, work: Path, threads: int
) -> PairScorer:
    """Return a scorer of the pairs of a corpus whose logits are kept in a work directory."""
    work.mkdir(parents=True, exist_ok=True)
    name = f"{corpus.folder.name}-{reranker.checkpoint.fingerprint[:16]}-{reranker.precision}.npz"

    def tell(done: int, of: int) -> None:
        print(f"{corpus.folder.name}: {done} of {of} pairs", flush=True)

    return PairScorer(reranker, corpus.texts, threads=threads, kept=work / name, told=tell)
