"""Fit how a reranker's logits and first-stage scores are combined, on validation queries.

    python -m evaluation.fitting.reranking --reranker NAME --data DATA --blocks KEPT

prints the fitted weights with their nDCG@10; `--write` stores them in the reranker's directory.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32, Float64, Int64
from encoder.calibration import FittedMap, FittedOn
from encoder.checkpoint import DEFAULT_CHECKPOINT, file_digest, load_checkpoint
from encoder.encoder import Encoder
from encoder.onnx_encoder import usable_cores
from encoder.opening import open_encoder
from encoder.reranker.onnx_reranker import OnnxReranker, open_reranker
from encoder.reranker.score_fusion import FusionWeights, ScoreFusion, write_score_fusion
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.experiment import Vectors, longmatch_systems, retrieval_task
from evaluation.fitting.calibration import FOLDS, MIN_OF_A_CLASS, Sample, fit_map
from evaluation.fitting.fusion import smoothed
from evaluation.judgements import PairRows, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.metrics import evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.reranking import PairScorer, mix, reranked_system
from evaluation.systems import System, rank
from index.corpus.reader import read_documents
from index.errors import CorpusError
from index.progress import SilentProgress

MODES = ("semantic", "lexical", "hybrid")
WEIGHTS = tuple(step / 20 for step in range(21))
SCALES = (0.125, 0.25, 0.5, 1.0)
CANDIDATES = 50  # of a query, which are reranked
_ROUNDING = 1e-9
_FIRST_STAGE, _RERANKER = FusionWeights(0.0, 1.0), FusionWeights(1.0, 1.0)  # each of them alone


Ndcg = Callable[[FusionWeights], Float64]
"""nDCG@10 Float64[Q] of the first candidates in the order of a mixture."""


@dataclass(frozen=True, slots=True)
class MixtureFit:
    """A fitted mixture and the values it was chosen from.

    Attributes:
        mixture: the one of the highest mean nDCG@10.
        ndcg: Float64[corpora, scales, weights], nDCG@10 of each.
    """

    mixture: FusionWeights
    ndcg: Float64


def measure_mixtures(system: System, scorer: PairScorer, task: RetrievalTask, number: int) -> Ndcg:
    """Score the queries of a task by a first stage; its first candidates are reranked."""
    scores = system.score(task.rows)
    place_of = {row: place for place, row in enumerate(task.rows.tolist())}
    first = replace(system, score=lambda rows: scores[[place_of[row] for row in rows.tolist()]])

    def ndcg(mixture: FusionWeights) -> Float64:
        reranked = reranked_system(first, scorer, mixture, number, "")
        run = rank(reranked, task.ids, task.query_ids, task.rows)
        return evaluate_per_query(run, task.qrels).ndcg

    return ndcg


def fit_mixture(corpora: Sequence[Ndcg]) -> MixtureFit:
    """Choose the weight and scale of the highest mean nDCG@10 over corpora.

    Every corpus counts the same, and on none of them may the mixture score below the first stage
    alone: a reranker that fits one corpus must not harm another. The mean over three neighbouring
    weights decides rather than a single one.

    Raises:
        ValueError: there is no corpus.
    """
    if not corpora:
        raise ValueError("there is no corpus to fit the mixture on")
    ndcg = np.array(
        [
            [[float(of_corpus(FusionWeights(w, s)).mean()) for w in WEIGHTS] for s in SCALES]
            for of_corpus in corpora
        ]
    )
    level = np.apply_along_axis(smoothed, -1, ndcg)
    level[..., 0] = ndcg[..., 0]  # weight 0 is the first stage, whatever its neighbours are
    loses = (level < ndcg[..., :1] - _ROUNDING).any(0)
    smooth = np.where(loses, -np.inf, level.mean(0))
    scale, weight = np.unravel_index(int(np.argmax(smooth)), smooth.shape)
    return MixtureFit(FusionWeights(WEIGHTS[weight], SCALES[scale]), ndcg)


def fit_rerank_map(corpora: Sequence[tuple[Float32, Int64]]) -> FittedMap:
    """Fit the map from reranked score to match probability, each corpus with the same weight.

    Args:
        corpora: scores Float32[P] and labels Int64[P] of labelled pairs. With several corpora, a
            whole one at a time is left out to measure the error.

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
        folds = np.random.default_rng(0).permutation(total) % FOLDS
    return fit_map(
        Sample(
            inputs=np.concatenate([scores for scores, _ in corpora]).astype(np.float64),
            labels=np.concatenate([labels for _, labels in corpora]),
            weights=np.repeat([total / len(corpora) / count for count in counts], counts),
            folds=folds,
        )
    )


@dataclass(frozen=True, slots=True)
class _Validation:
    """The validation queries and pairs of one corpus, and what scores them.

    Attributes:
        folder: with corpus.jsonl.gz, qrels.tsv, splits.tsv and pairs.valid.jsonl.gz.
        systems: by mode.
        scorer: the reranker.
        task: the queries.
        pairs: labelled.
    """

    folder: Path
    systems: Mapping[str, System]
    scorer: PairScorer
    task: RetrievalTask
    pairs: PairRows

    def scored_pairs(self, mode: str, mixture: FusionWeights) -> tuple[Float32, Int64]:
        """Return reranked scores and labels of the pairs."""
        pairs = self.pairs
        first_stage = self.systems[mode].score_pairs(pairs.sources, pairs.targets)
        edges = list(zip(pairs.sources.tolist(), pairs.targets.tolist(), strict=True))
        return mix(mixture, first_stage, self.scorer(edges)), pairs.labels.astype(np.int64)

    def fitted_on(self) -> FittedOn:
        """Describe the pairs."""
        labels, digest = self.pairs.labels, file_digest(self.folder / _PAIRS)
        return FittedOn(f"{self.folder.name} valid", len(labels), int(labels.sum()), digest)


_PAIRS = "pairs.valid.jsonl.gz"


def _read(folder: Path, blocks: Path, encoder: Encoder, reranker: OnnxReranker) -> _Validation:
    """Read a corpus with its validation queries; its block vectors are kept."""
    path = folder / "corpus.jsonl.gz"
    embedded = embed_encoded_corpus(keep_blocks(path, blocks, encoder, SilentProgress()), encoder)
    texts = [document.titled_text for document in read_documents(path, embedded.ids)]
    vectors = Vectors(embedded, embedded)
    systems = longmatch_systems(vectors, encoder.checkpoint, "hybrid", [path])
    qrels, splits = read_qrels(folder / "qrels.tsv"), read_splits(folder / "splits.tsv")
    names = [name for name in embedded.ids if name in qrels and splits.get(name) == "valid"]
    return _Validation(
        folder,
        {system.name: system for system in systems},
        PairScorer(reranker, texts, threads=usable_cores()),
        retrieval_task(vectors, qrels, set(names)),
        find_pairs(read_pairs(folder / _PAIRS), embedded.ids),
    )


def main() -> None:
    """Fit the score fusion of a reranker and print it."""
    given = _parse_arguments()
    encoder = open_encoder(load_checkpoint(given.checkpoint))
    reranker = open_reranker(given.reranker)
    corpora = [
        _read(given.data / name, given.blocks / name, encoder, reranker)
        for name in given.corpora.split(",")
    ]
    mixtures, figures = {}, {}
    for mode in MODES:
        ndcg = [
            measure_mixtures(corpus.systems[mode], corpus.scorer, corpus.task, CANDIDATES)
            for corpus in corpora
        ]
        fitted = fit_mixture(ndcg)
        mixtures[mode] = fitted.mixture
        figures[mode] = {**asdict(fitted.mixture), **_describe(corpora, ndcg, fitted)}
    rule = ScoreFusion(
        encoder=encoder.fingerprint,
        weights=mixtures,
        maps={
            mode: fit_rerank_map([corpus.scored_pairs(mode, mixture) for corpus in corpora])
            for mode, mixture in mixtures.items()
        },
        fitted_on=tuple(corpus.fitted_on() for corpus in corpora),
    )
    print(json.dumps({"version": rule.version, "modes": figures}, indent=2))
    if given.write:
        write_score_fusion(reranker.checkpoint, rule)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--reranker", "--data", "--blocks"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--corpora", default="proposals,wikispeedia")
    parser.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


def _describe(
    corpora: Sequence[_Validation], ndcg: Sequence[Ndcg], fitted: MixtureFit
) -> dict[str, Any]:
    """Return nDCG@10 of both stages and of their mixture on the same queries, by corpus."""
    return {
        corpus.folder.name: {
            "queries": len(corpus.task.query_ids),
            "first stage": round(float(of_corpus(_FIRST_STAGE).mean()), 4),
            "reranker alone": round(float(of_corpus(_RERANKER).mean()), 4),
            "reranked": round(float(of_corpus(fitted.mixture).mean()), 4),
            "at its own best": round(float(fitted.ndcg[number].max()), 4),
        }
        for number, (corpus, of_corpus) in enumerate(zip(corpora, ndcg, strict=True))
    }


if __name__ == "__main__":
    main()
