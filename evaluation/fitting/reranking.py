"""Fitting the rule of a reranker on validation queries of several corpora together."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32, Float64, Int64
from encoder.calibration import FittedMap, FittedOn
from encoder.checkpoint import DEFAULT_CHECKPOINT, file_digest, load_checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from encoder.reranker.score_fusion import FusionWeights, ScoreFusion, write_score_fusion
from evaluation.fitting.calibration import MIN_OF_A_CLASS, Sample, fit_map
from evaluation.fitting.judged_corpora import JudgedCorpus, open_calibrator, read_judged_corpus
from evaluation.judgements import Qrels
from evaluation.report import Retrieval
from evaluation.reranking import PairJudge, first_candidates, mix
from evaluation.systems import System
from index.errors import CorpusError

MODES = ("semantic", "lexical", "hybrid")


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--reranker", "--data", "--vectors", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--corpora", default="proposals,wikispeedia")
    parser.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--queries", type=int, help="of each corpus, drawn; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    checkpoint, reranker = load_checkpoint(given.checkpoint), open_reranker(given.reranker)
    corpora = [
        read_judged_corpus(given.data / name, given.vectors / f"{name}.npz", checkpoint)
        for name in given.corpora.split(",")
    ]
    judges = [open_calibrator(one, reranker, given.work, given.threads) for one in corpora]
    questions = [one.question("valid", given.queries) for one in corpora]
    asked = list(zip(corpora, judges, questions, strict=True))
    fitted = {mode: fit(mode, asked, given.candidates) for mode in MODES}
    rule = ScoreFusion(
        encoder=checkpoint.fingerprint,
        weights={mode: mixture for mode, (mixture, _) in fitted.items()},
        maps={
            mode: fit_rerank_map(
                [
                    scored_pairs(mode, mixture, one, judge)
                    for one, judge in zip(corpora, judges, strict=True)
                ]
            )
            for mode, (mixture, _) in fitted.items()
        },
        fitted_on=tuple(fitted_on(one) for one in corpora),
    )
    shown = {mode: {**asdict(mixture), **table} for mode, (mixture, table) in fitted.items()}
    print(json.dumps({"version": rule.version, "modes": shown}, indent=2))
    if given.write:
        write_score_fusion(reranker.checkpoint, rule)


def fit(
    mode: str, asked: Sequence[tuple[JudgedCorpus, PairJudge, Retrieval]], candidates: int
) -> tuple[FusionWeights, dict[str, Any]]:
    """Fit the mixture of one mode, and show nDCG@10 of both stages on the same queries."""
    known: list[Candidates] = []
    for corpus, judge, question in asked:
        system = corpus.systems[mode]
        known.append(
            judge_candidates(system, judge, question.ids, question.rows, question.qrels, candidates)
        )
    found = fit_mixture(known)
    table = {
        corpus.folder.name: {
            "queries": len(one.ideal),
            "first stage": round(float(ndcg_of(one, FusionWeights(0.0, 1.0)).mean()), 4),
            "reranker alone": round(float(ndcg_of(one, FusionWeights(1.0, 1.0)).mean()), 4),
            "reranked": round(float(ndcg_of(one, found.mixture).mean()), 4),
            "at its own best": round(float(found.ndcg[number].max()), 4),
        }
        for number, ((corpus, _, _), one) in enumerate(zip(asked, known, strict=True))
    }
    return found.mixture, table


def scored_pairs(
    mode: str, mixture: FusionWeights, corpus: JudgedCorpus, judge: PairJudge
) -> tuple[np.ndarray, np.ndarray]:
    """Return reranked scores and labels of the validation pairs of a corpus."""
    pairs = corpus.pairs("valid")
    first_stage = corpus.systems[mode].score_pairs(pairs.sources, pairs.targets)
    logits = judge(list(zip(pairs.sources.tolist(), pairs.targets.tolist(), strict=True)))
    return mix(mixture, first_stage, logits), pairs.labels.astype(np.int64)


def fitted_on(corpus: JudgedCorpus) -> FittedOn:
    """Name the validation pairs of a corpus."""
    path, pairs = corpus.folder / "pairs.valid.jsonl.gz", corpus.pairs("valid")
    return FittedOn(
        f"{corpus.folder.name} valid",
        len(pairs.labels),
        int(pairs.labels.sum()),
        file_digest(path),
    )


if __name__ == "__main__":
    main()


WEIGHTS = tuple(step / 20 for step in range(21))
SCALES = (0.125, 0.25, 0.5, 1.0)
_ROUNDING = 1e-9
_DEPTH = 10


@dataclass(frozen=True, slots=True)
class Candidates:
    """The first C candidates of each of Q queries, with what both stages say of them.

    Attributes:
        relevance: Float64[Q, C].
        first_stage: Float64[Q, C].
        logits: Float64[Q, C].
        ideal: Float64[Q], the discounted gain of the best order of all relevant documents.
    """

    relevance: Float64
    first_stage: Float64
    logits: Float64
    ideal: Float64


@dataclass(frozen=True, slots=True)
class MixtureFit:
    """A fitted mixture and what it was chosen from.

    Attributes:
        mixture: of the highest mean.
        ndcg: Float64[corpora, scales, weights], nDCG@10 of each.
    """

    mixture: FusionWeights
    ndcg: Float64


def judge_candidates(
    system: System, judge: PairJudge, ids: Sequence[str], rows: Int64, qrels: Qrels, number: int
) -> Candidates:
    """Let a reranker read the first candidates of queries that are documents of the corpus.

    Args:
        system: the first stage.
        judge: the second.
        ids: N ids of the documents.
        rows: Int64[Q], queries with at least one relevant document.
        qrels: judgements.
        number: of candidates.
    """
    best = first_candidates(system, rows, number)
    scores = system.score(rows)
    edges = [(row, other) for row, some in zip(rows.tolist(), best, strict=True) for other in some]
    judged = [qrels[ids[row]] for row in rows.tolist()]
    relevance = [
        [max(0, of.get(ids[other], 0)) for other in some]
        for of, some in zip(judged, best, strict=True)
    ]
    gains = [sorted((max(0, one) for one in of.values()), reverse=True) for of in judged]
    return Candidates(
        relevance=np.array(relevance, dtype=np.float64),
        first_stage=np.take_along_axis(scores, np.array(best), axis=1).astype(np.float64),
        logits=judge(edges).reshape(len(rows), -1).astype(np.float64),
        ideal=np.array([_discounted(np.array(one, dtype=np.float64)[None])[0] for one in gains]),
    )


def fit_mixture(corpora: Sequence[Candidates]) -> MixtureFit:
    """Choose weight and scale whose mean nDCG@10 over the corpora is highest, and none loses by.

    Every corpus counts alike, and in none may the mixture find less than the first stage alone: a
    reranker that knows one corpus well must not spoil another. A mean over three neighbouring
    weights decides rather than one.

    Raises:
        ValueError: there is no corpus.
    """
    if not corpora:
        raise ValueError("there is no corpus to fit the rule on")
    ndcg = np.array(
        [
            [[float(ndcg_of(one, FusionWeights(w, s)).mean()) for w in WEIGHTS] for s in SCALES]
            for one in corpora
        ]
    )
    wide = np.pad(ndcg, ((0, 0), (0, 0), (1, 1)), mode="edge")
    level = (wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]) / 3
    level[..., 0] = ndcg[..., 0]  # weight 0 is the first stage, whatever its neighbours are
    loses = (level < ndcg[..., :1] - _ROUNDING).any(0)
    smooth = np.where(loses, -np.inf, level.mean(0))
    scale, weight = np.unravel_index(int(np.argmax(smooth)), smooth.shape)
    return MixtureFit(FusionWeights(WEIGHTS[weight], SCALES[scale]), ndcg)


def ndcg_of(candidates: Candidates, mixture: FusionWeights) -> Float64:
    """Return nDCG@10 Float64[Q] of candidates in the order of a mixture."""
    probabilities = 0.5 * (1.0 + np.tanh(0.5 * mixture.scale * candidates.logits))
    scores = (1.0 - mixture.weight) * candidates.first_stage + mixture.weight * probabilities
    order = np.argsort(-scores, axis=1, kind="stable")
    gains = _discounted(np.take_along_axis(candidates.relevance, order, axis=1))
    return gains / candidates.ideal


def fit_rerank_map(corpora: Sequence[tuple[Float32, Int64]], *, seed: int = 0) -> FittedMap:
    """Fit the map from reranked score to match probability, each corpus with the same weight.

    Args:
        corpora: scores Float32[P] and labels Int64[P] of labelled pairs; of several corpora, a
            whole one is left out at a time to measure the error.
        seed: of the folds of a single one.

    Raises:
        CorpusError: too few pairs of a label, or higher scores do not mean more matches.
    """
    for _, labels in corpora:
        if min(int(labels.sum()), int((1 - labels).sum())) < MIN_OF_A_CLASS:
            raise CorpusError(f"fewer than {MIN_OF_A_CLASS} pairs with one of the labels")
    counts = [len(labels) for _, labels in corpora]
    total = sum(counts)
    folds = np.repeat(np.arange(len(corpora)), counts)
    if len(corpora) == 1:
        folds = np.random.default_rng(seed).permutation(total) % 5
    return fit_map(
        Sample(
            inputs=np.concatenate([scores for scores, _ in corpora]).astype(np.float64),
            labels=np.concatenate([labels for _, labels in corpora]),
            weights=np.repeat([total / len(corpora) / count for count in counts], counts),
            folds=folds,
        )
    )


def _discounted(gains: Float64) -> Float64:
    """Return the discounted cumulative gain [Q] of gains [Q, C] at depth 10 (gain / log2 rank)."""
    top = gains[:, :_DEPTH]
    discounted: Float64 = (top / np.log2(np.arange(2, top.shape[1] + 2))).sum(axis=1)
    return discounted
