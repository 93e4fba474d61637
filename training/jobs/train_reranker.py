"""The job of `longmatch train-reranker`: from corpora with links to a trained reranker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from encoder.arrays import Float32
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from evaluation.judgements import Qrels
from evaluation.metrics import in_order, ndcg_at_10
from index.progress import Progress
from training.data.files import RerankJob, TimeLimit, read_recipe
from training.data.labelled_pairs import LabelledPairDataset
from training.data.rerank_pairs import (
    PairKinds,
    RerankCorpus,
    prepare_rerank_data,
    read_rerank_corpus,
    rerank_fingerprint,
)
from training.jobs.output import RUN, TrainingReport, make_report, output_of

if TYPE_CHECKING:
    from encoder.models.architecture import RerankerModel
    from training.progress import TrainingProgress

FIGURE = "nDCG@10 of validation queries, their first lexical candidates in the reranker's order"


def train_reranker(
    job: RerankJob, progress: Progress, training_progress: "TrainingProgress"
) -> RerankerCheckpoint:
    """Train a reranker, or resume training, and write it with its graphs.

    Raises:
        CorpusError: the data lacks what a reranker learns from, or an extra is not installed.
        TrainingRecipeError: the recipe is not for a reranker.
        ParityError: a graph does not compute what the model computes.
    """
    from encoder.export.create import load_reranker_model
    from training.collate import training_device
    from training.loop import TrainingPlan, train
    from training.recipe import RerankRecipe
    from training.rerank_objective import rerank_objective, score_pairs

    recipe = read_recipe(job)
    objective = cast(RerankRecipe, recipe.objectives[0])  # `read_recipe` rejects any other
    corpora = [read_rerank_corpus(files, recipe.seed) for files in job.files]
    kinds = PairKinds(objective.candidates, objective.random)
    data = prepare_rerank_data(corpora, job.start, kinds, job.work, progress)
    model = load_reranker_model(job.start, {"dropout": recipe.dropout}).to(training_device())
    out_of_time = TimeLimit(job.seconds)
    plan = TrainingPlan(
        recipe=recipe,
        objectives=[rerank_objective(objective, data.training, job.start, recipe.documents)],
        validate=lambda trained: validation_figure(
            data.validation, score_pairs(trained, data.validation, job.start)
        ),
        data_fingerprint=rerank_fingerprint(corpora, job.start),
        stop=out_of_time,
    )
    train(model, plan, job.work / RUN, training_progress)
    facts = _facts(corpora, data.training)
    report = make_report(job, recipe, FIGURE, facts, out_of_time=out_of_time.over)
    return _write(job, model.cpu(), report)


def validation_figure(table: LabelledPairDataset, logits: Float32) -> float:
    """Return nDCG@10 of the candidates of queries, in the order of the reranker alone.

    The mean over corpora of equal weight. Fusion with the first stage would hide what a reranker
    has learned early in training, when the first stage alone is much better. Relevant documents
    that are not among the candidates are ignored.

    Args:
        table: candidates; the group of a pair is its query, and a hundred thousand groups a corpus.
        logits: Float32[P] of the pairs.
    """
    qrels: Qrels = {}
    scores: dict[str, dict[str, float]] = {}
    for group in np.unique(table.groups).tolist():
        rows = np.flatnonzero(table.groups == group)
        if table.labels[rows].any():
            qrels[str(group)] = {str(row): int(table.labels[row]) for row in rows.tolist()}
            best_first = rows[np.argsort(-logits[rows], kind="stable")]
            scores[str(group)] = in_order(map(str, best_first.tolist()))
    by_corpus: dict[int, list[float]] = {}
    for group_name, gain in zip(qrels, ndcg_at_10(scores, qrels).tolist(), strict=True):
        by_corpus.setdefault(int(group_name) // 100_000, []).append(gain)
    return float(np.mean([np.mean(values) for values in by_corpus.values()]))


def _facts(corpora: Sequence[RerankCorpus], table: LabelledPairDataset) -> list[Mapping[str, Any]]:
    return [
        {
            "corpus": corpus.files.corpus.name,
            "documents": len(corpus.ids),
            "pairs": int((table.groups == number).sum()),
            "matches": int(table.labels[table.groups == number].sum()),
        }
        for number, corpus in enumerate(corpora)
    ]


def _write(job: RerankJob, model: "RerankerModel", report: TrainingReport) -> RerankerCheckpoint:
    """Write the reranker, its graphs, its curve and the report, atomically."""
    from encoder.export.create import write_trained_reranker
    from encoder.export.export_reranker import export_reranker

    with output_of(job, report) as directory:
        checkpoint = write_trained_reranker(model, job.start, directory, job.start.name)
        export_reranker(checkpoint, job.precisions)
    return load_reranker_checkpoint(job.output)
