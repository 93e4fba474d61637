"""Judged corpora with the systems of all three modes, for fitting and measuring the reranker."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.checkpoint import Checkpoint
from encoder.reranker.onnx_reranker import OnnxReranker
from evaluation.experiment import Vectors, retrieval_task
from evaluation.judgements import PairRows, Qrels, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.report import RetrievalTask
from evaluation.second_stage.alignment import hybrid_system, semantic_system
from evaluation.second_stage.reranking import PairScorer
from evaluation.systems import System, cache_scores, lexical_system, vector_system
from index.corpus.reader import read_documents
from index.embed import EmbeddedCorpus, read_aligned_corpus
from index.search.fusion import read_fusion


@dataclass(frozen=True, slots=True)
class JudgedCorpus:
    """One corpus, its judgements, and the systems of the three modes.

    Attributes:
        folder: with corpus.jsonl.gz, qrels.tsv, splits.tsv and pairs.<part>.jsonl.gz.
        embedded: its document vectors.
        texts: by row, with their titles, as a reranker reads them.
        qrels: judgements.
        systems: by mode.
    """

    folder: Path
    embedded: EmbeddedCorpus
    texts: list[str]
    qrels: Qrels
    systems: Mapping[str, System]

    def task(self, part: str, limit: int | None = None) -> RetrievalTask:
        """Return the retrieval task of a part, with all its queries or a sample of `limit`."""
        splits, ids = read_splits(self.folder / "splits.tsv"), self.embedded.ids
        rows = [n for n, name in enumerate(ids) if name in self.qrels and splits.get(name) == part]
        if limit is not None:
            rows = np.random.default_rng(0).permutation(rows)[:limit].tolist()
        vectors = Vectors(self.embedded, self.embedded)
        return retrieval_task(vectors, self.qrels, {ids[row] for row in rows})

    def pairs(self, part: str) -> PairRows:
        """Return the labelled pairs of a part."""
        return find_pairs(read_pairs(self.folder / f"pairs.{part}.jsonl.gz"), self.embedded.ids)


def read_judged_corpus(folder: Path, vectors: Path, checkpoint: Checkpoint) -> JudgedCorpus:
    """Read a corpus, and its vectors as written by `longmatch embed --blocks`."""
    embedded = read_aligned_corpus(vectors)
    documents = read_documents(folder / "corpus.jsonl.gz", embedded.ids)
    texts = [document.text for document in documents]
    titled = [document.titled_text for document in documents]
    vector = vector_system("vector", checkpoint.name, embedded.vectors)
    rule = read_fusion(checkpoint)
    semantic = semantic_system(vector, embedded.aligned, rule, "semantic")
    lexical = cache_scores(lexical_system(texts, [one.title for one in documents]))
    hybrid = hybrid_system(vector, lexical, embedded.aligned, rule)
    systems = {"semantic": semantic, "lexical": lexical, "hybrid": hybrid}
    return JudgedCorpus(folder, embedded, titled, read_qrels(folder / "qrels.tsv"), systems)


def open_pair_scorer(
    corpus: JudgedCorpus, reranker: OnnxReranker, work: Path, threads: int
) -> PairScorer:
    """Open a scorer of the pairs of a corpus that stores logits in a work directory."""
    work.mkdir(parents=True, exist_ok=True)
    name = f"{corpus.folder.name}-{reranker.checkpoint.fingerprint[:16]}-{reranker.precision}.npz"

    def print_progress(done: int, total: int) -> None:
        print(f"{corpus.folder.name}: {done} of {total} pairs", flush=True)

    return PairScorer(
        reranker, corpus.texts, threads=threads, cache=work / name, on_progress=print_progress
    )
