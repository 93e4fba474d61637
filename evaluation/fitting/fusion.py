"""Fit the fusion of vector and word scores on validation queries of several corpora.

    python -m evaluation.fitting.fusion --data FOLDER [--vectors FOLDER]

prints the fitted weight with its nDCG@10; `--write` stores it in the checkpoint.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from evaluation.experiment import Vectors, retrieval_task
from evaluation.judgements import read_qrels, read_splits
from evaluation.metrics import evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.systems import (
    HYBRID,
    System,
    cache_scores,
    hybrid_system,
    lexical_system,
    rank,
    vector_system,
)
from index.corpus.reader import read_documents
from index.embed import embed_corpus, read_embedded_corpus
from index.progress import SilentProgress
from index.search.fusion import LinearFusion, write_fusion

STEPS = 40
RECIPROCAL_RANK = 60  # the constant of reciprocal rank fusion, the alternative that is shown


@dataclass(frozen=True, slots=True)
class FusionCorpus:
    """The scores of both channels for the validation queries of one corpus.

    Attributes:
        task: Q queries and their judgements.
        semantic: scores of the vectors.
        lexical: scores of the words.
    """

    task: RetrievalTask
    semantic: System
    lexical: System


@dataclass(frozen=True, slots=True)
class FusionFit:
    """A fitted fusion and the values it was chosen from.

    Attributes:
        rule: the fusion of the highest mean nDCG@10.
        weights: weights of the lexical score that were tried, from 0 (semantic) to 1 (lexical).
        ndcg: Float32[corpora, weights], nDCG@10 of each.
        reciprocal_rank: Float32[corpora], nDCG@10 of reciprocal rank fusion.
    """

    rule: LinearFusion
    weights: tuple[float, ...]
    ndcg: Float32
    reciprocal_rank: Float32


def fit_fusion(corpora: Sequence[FusionCorpus]) -> FusionFit:
    """Choose the weight of the lexical score of the highest mean nDCG@10 over corpora.

    Every corpus counts the same, however many queries it has. The curve is flat around its maximum,
    so the mean over three neighbouring weights decides rather than a single one.

    Raises:
        CorpusError: no query has a judgement.
        MissingExtraError: ir-measures is not installed.
        ValueError: there is no corpus.
    """
    if not corpora:
        raise ValueError("there is no corpus to fit the fusion on")
    weights = tuple(step / STEPS for step in range(STEPS + 1))
    ndcg = np.zeros((len(corpora), len(weights)), dtype=np.float32)
    ranks = np.zeros(len(corpora), dtype=np.float32)
    for row, corpus in enumerate(corpora):
        semantic, lexical = cache_scores(corpus.semantic), cache_scores(corpus.lexical)
        for column, weight in enumerate(weights):
            fused = hybrid_system(semantic, lexical, LinearFusion(weight))
            ndcg[row, column] = _mean_ndcg(fused, corpus.task)
        ranks[row] = _mean_ndcg(_reciprocal_ranks(semantic, lexical), corpus.task)
    smooth = np.convolve(np.pad(ndcg.mean(axis=0), 1, mode="edge"), np.ones(3) / 3, mode="valid")
    return FusionFit(LinearFusion(weights[int(np.argmax(smooth))]), weights, ndcg, ranks)


def _mean_ndcg(system: System, task: RetrievalTask) -> float:
    run = rank(system, task.ids, task.query_ids, task.rows)
    return float(evaluate_per_query(run, task.ids, task.qrels).ndcg.mean())


def _reciprocal_ranks(semantic: System, lexical: System) -> System:
    def score(rows: Int64) -> Float32:
        total: Float32 = _reciprocal(semantic.score(rows)) + _reciprocal(lexical.score(rows))
        return total

    return System(HYBRID, "reciprocal rank fusion", score, semantic.score_pairs)


def _reciprocal(scores: Float32) -> Float32:
    ranks = np.argsort(np.argsort(-scores, axis=1, kind="stable"), axis=1)
    inverse: Float32 = (1.0 / (RECIPROCAL_RANK + 1 + ranks)).astype(np.float32)
    return inverse


def main() -> None:
    """Fit the fusion and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    checkpoint = load_checkpoint(given.checkpoint)
    folders = sorted(path.parent for path in given.data.glob("*/qrels.tsv"))
    if given.vectors:
        folders = [one for one in folders if (given.vectors / f"{one.name}.npz").exists()]
    if not folders:
        sys.exit(f"{given.data}: there is no corpus with judgements (and vectors)")
    corpora = [_read_corpus(folder, given.vectors, checkpoint) for folder in folders]
    fitted = fit_fusion(corpora)
    print(json.dumps(_describe([folder.name for folder in folders], fitted), indent=2))
    if given.write:
        write_fusion(checkpoint, fitted.rule)


def _read_corpus(folder: Path, vectors: Path | None, checkpoint: Checkpoint) -> FusionCorpus:
    """Read one corpus, its vectors (or encode it) and its validation queries."""
    corpus = folder / "corpus.jsonl.gz"
    if vectors:
        embedded = read_embedded_corpus(vectors / f"{folder.name}.npz")
    else:
        encoder = OnnxEncoder(checkpoint)
        embedded = embed_corpus(corpus, BlockTokenizer(checkpoint), encoder, SilentProgress())
    documents = read_documents(corpus, embedded.ids)
    parts = read_splits(folder / "splits.tsv")
    valid = {name for name, part in parts.items() if part == "valid"}
    return FusionCorpus(
        task=retrieval_task(Vectors(embedded, embedded), read_qrels(folder / "qrels.tsv"), valid),
        semantic=vector_system("semantic", checkpoint.name, embedded.vectors),
        lexical=lexical_system([one.text for one in documents], [one.title for one in documents]),
    )


def _describe(names: Sequence[str], fitted: FusionFit) -> dict[str, object]:
    """Return the fit as JSON."""
    chosen = fitted.weights.index(fitted.rule.lexical_weight)
    every = fitted.ndcg.mean(axis=0)

    def row(values: np.ndarray, ranks: float) -> dict[str, float]:
        return {
            "semantic": round(float(values[0]), 4),
            "lexical": round(float(values[-1]), 4),
            "reciprocal rank fusion": round(float(ranks), 4),
            "hybrid": round(float(values[chosen]), 4),
            "hybrid at its own best weight": round(float(values.max()), 4),
        }

    ranks = fitted.reciprocal_rank
    return {
        "lexical_weight": fitted.rule.lexical_weight,
        "nDCG@10 of valid": {
            **{one: row(fitted.ndcg[n], ranks[n]) for n, one in enumerate(names)},
            "mean": row(every, float(ranks.mean())),
        },
        "mean by weight": {
            str(weight): round(float(value), 4)
            for weight, value in zip(fitted.weights, every, strict=True)
        },
    }


if __name__ == "__main__":
    main()
