"""The job of `longmatch train-reranker`: corpora with links in, a trained reranker out."""

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from encoder.noise_filter import Float32
from encoder.pair_table import PairTable
from encoder.rerank_rule import Mixture
from encoder.reranker_checkpoint import RerankerCheckpoint
from index.observer import Observer
from index.rerank_data import (
    RerankCorpus,
    prepare_rerank_data,
    read_rerank_corpus,
    rerank_fingerprint,
)
from index.training_files import CorpusFiles

if TYPE_CHECKING:
    from encoder.training.observer import TrainingObserver
    from encoder.training.recipe import TrainingRecipe

FIGURE = "nDCG@10 of validation queries, their first lexical candidates reranked"
RUN = "run"
_WEIGHTS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankJob:
    """What to train, on what, and where to.

    Attributes:
        recipe: a TOML file with one objective, of kind "rerank".
        start: the reranker to start from, with its weights.
        files: the corpora.
        output: the directory to write; must not be there.
        work: the directory for what is computed on the way.
        precisions: of the graphs to export.
        seconds: of training, of this call, after which it ends and keeps the best so far.
    """

    recipe: Path
    start: RerankerCheckpoint
    files: Sequence[CorpusFiles]
    output: Path
    work: Path
    precisions: Sequence[str]
    seconds: float | None = None


def train_reranker(
    job: RerankJob, observer: Observer, training_observer: "TrainingObserver"
) -> RerankerCheckpoint:
    """Train a reranker, or go on with training, and write it with its graphs.

    Raises:
        CorpusError: the data has not what a reranker learns from, or an extra is not installed.
        TrainingRecipeError: the recipe is none of a reranker.
        ParityError: a graph does not compute what the model computes.
    """
    from encoder.create_reranker import load_reranker_model
    from encoder.training.drawing import training_device
    from encoder.training.loop import TrainingPlan, train
    from encoder.training.rerank_objective import judge_pairs, rerank_objective

    recipe = _read_recipe(job.recipe)
    objective = recipe.objectives[0]
    corpora = [read_rerank_corpus(files, recipe.seed) for files in job.files]
    candidates = int(objective.number("candidates"))
    data = prepare_rerank_data(corpora, job.start, candidates, job.work, observer)
    model = load_reranker_model(job.start, {"dropout": recipe.dropout}).to(training_device())
    end = None if job.seconds is None else time.monotonic() + job.seconds
    plan = TrainingPlan(
        recipe=recipe,
        objectives=[rerank_objective(objective, data.training, job.start, recipe.documents)],
        validate=lambda trained: validation_figure(
            data.validation, judge_pairs(trained, data.validation, job.start)
        ),
        data_fingerprint=rerank_fingerprint(corpora, job.start),
        stop=lambda: end is not None and time.monotonic() >= end,
    )
    train(model, plan, job.work / RUN, training_observer)
    return _write(job, model.cpu(), recipe, _facts(corpora, data.training))


def validation_figure(table: PairTable, logits: Float32) -> float:
    """Return nDCG@10 of the candidates of queries, in the best of a few mixtures.

    The mean of the corpora, each counting alike. Relevant documents that are not among the
    candidates are not asked for.

    Args:
        table: candidates; the group of a pair is its query, and a hundred thousand groups a corpus.
        logits: Float32[P] of the pairs.
    """
    figures = []
    for weight in _WEIGHTS:
        mixture = Mixture(weight, 1.0)
        scores = np.array(
            [
                mixture.score(first, logit)
                for first, logit in zip(table.scores.tolist(), logits.tolist(), strict=True)
            ]
        )
        by_corpus: dict[int, list[float]] = {}
        for group in np.unique(table.groups).tolist():
            rows = np.flatnonzero(table.groups == group)
            if table.labels[rows].any():
                gain = _ndcg(table.labels[rows[np.argsort(-scores[rows], kind="stable")]])
                by_corpus.setdefault(group // 100_000, []).append(gain)
        figures.append(float(np.mean([np.mean(values) for values in by_corpus.values()])))
    return max(figures)


def _ndcg(relevance: Float32, depth: int = 10) -> float:
    """Return nDCG of candidates in their order; their relevance is the gain."""
    discounts = 1.0 / np.log2(np.arange(2, depth + 2))
    found = relevance[:depth]
    best = np.sort(relevance)[::-1][:depth]
    return float(found @ discounts[: len(found)] / (best @ discounts[: len(best)]))


def _read_recipe(path: Path) -> "TrainingRecipe":
    from encoder.training.errors import TrainingRecipeError
    from encoder.training.recipe_file import read_training_recipe

    recipe = read_training_recipe(path)
    if recipe.objectives[0].kind != "rerank":
        raise TrainingRecipeError(f'recipe {path}: a reranker takes the objective "rerank"')
    return replace(recipe, max_blocks=1)


def _facts(corpora: Sequence[RerankCorpus], table: PairTable) -> list[Mapping[str, Any]]:
    return [
        {
            "corpus": corpus.files.corpus.name,
            "documents": len(corpus.ids),
            "pairs": int((table.groups == number).sum()),
            "matches": int(table.labels[table.groups == number].sum()),
        }
        for number, corpus in enumerate(corpora)
    ]


def _write(
    job: RerankJob, model: Any, recipe: "TrainingRecipe", facts: Sequence[Mapping[str, Any]]
) -> RerankerCheckpoint:
    """Write the reranker, its graphs, its curve and a report: all of it or nothing."""
    from encoder.create_reranker import write_trained_reranker
    from encoder.export_reranker import export_reranker
    from encoder.reranker_checkpoint import load_reranker_checkpoint
    from encoder.training.curves import CURVE, LOSS, VALIDATION, draw_curve, read_curve

    partial = job.output.with_name(job.output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    checkpoint = write_trained_reranker(model, job.start, partial, job.start.name)
    export_reranker(checkpoint, job.precisions)
    folder = partial / "training"
    folder.mkdir()
    shutil.copyfile(job.work / RUN / CURVE, folder / CURVE)
    shutil.copyfile(job.recipe, folder / "recipe.toml")
    draw_curve(folder / CURVE, folder / "curve.svg")
    records = read_curve(folder / CURVE)
    validations = {r["step"]: r[VALIDATION] for r in records if VALIDATION in r}
    best = max(validations, key=lambda step: (validations[step], -step))
    report = {
        "recipe": asdict(recipe)["name"],
        "start": f"{job.start.name} {job.start.fingerprint}",
        "figure": FIGURE,
        "before": validations[min(validations)],
        "best": validations[best],
        "best_step": best,
        "steps": max((r["step"] for r in records if LOSS in r), default=0),
        "corpora": list(facts),
    }
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    partial.rename(job.output)
    return load_reranker_checkpoint(job.output)
