"""The job of `longmatch lab train`: from links or labelled pairs to a trained reranker."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from evaluation.judgements import Qrels
from evaluation.metrics import AUC, in_order, measure_pairs, ndcg_at_10
from index.progress import Progress
from training.data.files import RerankJob, TimeLimit, read_recipe
from training.data.labelled_pairs import LabelledPairDataset
from training.data.rerank_corpus import RerankCorpus, check_rerank_files, read_rerank_corpus
from training.data.rerank_pairs import (
    QUERIES,
    PairKinds,
    RerankData,
    prepare_rerank_data,
    rerank_fingerprint,
)
from training.errors import TrainingRecipeError
from training.jobs.output import RUN, TrainingReport, make_report, output_of

if TYPE_CHECKING:
    from encoder.models.match_ignition import MatchIgnition
    from training.progress import TrainingProgress

_GROUPS = 100_000  # of validation pairs, of a corpus


def train_reranker(
    job: RerankJob, progress: Progress, training_progress: "TrainingProgress"
) -> RerankerCheckpoint:
    """Train a reranker, or resume training, and write it with its graphs.

    Raises:
        CorpusError: the data lacks what a reranker learns from, or an extra is not installed.
        TrainingRecipeError: the recipe is not for a reranker, or graphs of one are to be written
            that drops words at random.
        ParityError: a graph does not compute what the model computes.
    """
    from encoder.export.create import load_reranker_model
    from training.collate import training_device
    from training.loop import TrainingPlan, Validated, train
    from training.recipe_tables.objectives import RerankRecipe
    from training.rerank_objective import rerank_objective, score_pairs

    recipe = read_recipe(job)
    if job.precisions and job.start.model["importance"] == "random":
        raise TrainingRecipeError(
            f'{job.start.directory}: importance = "random" drops other words each time: no graph '
            "computes what the model computes, so that it cannot be served"
        )
    objective = cast(RerankRecipe, recipe.objectives[0])  # `read_recipe` rejects any other
    given = objective.pairs == "given"
    check_rerank_files(job.files, given=given)
    corpora = [
        read_rerank_corpus(files, recipe.seed, allow_shared=job.allow_shared) for files in job.files
    ]
    kinds = PairKinds(objective.candidates, objective.random, given)
    data = prepare_rerank_data(corpora, job.start, kinds, job.work, progress)
    model = load_reranker_model(job.start, {"dropout": recipe.dropout}).to(training_device())
    out_of_time = TimeLimit(job.seconds)
    plan = TrainingPlan(
        recipe=recipe,
        objectives=[rerank_objective(objective, data.training, job.start, recipe.documents)],
        validate=lambda trained: Validated(
            measure(data, score_pairs(trained, data.validation, job.start))
        ),
        data_fingerprint=rerank_fingerprint(corpora, job.start),
        stop=out_of_time,
    )
    train(model, plan, job.work / RUN, training_progress)
    facts = _facts(corpora, data.training)
    report = make_report(job, recipe, data.figure, facts, out_of_time=out_of_time.over)
    return _write(job, model.cpu(), report)


def measure(data: RerankData, logits: Float32) -> float:
    """Return the figure of validation, the mean over corpora of equal weight.

    It is of the reranker alone. Fusion with the first stage would hide what it has learned early in
    training, when the first stage alone is much better. Relevant documents that are not among the
    candidates of a query are ignored.

    Args:
        data: whose validation is measured; the group of a pair is its query, and a hundred thousand
            groups a corpus.
        logits: Float32[P] of its pairs.
    """
    measured = _ndcg_of_queries if data.figure == QUERIES else _auc
    numbers = data.validation.groups // _GROUPS
    rows = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    values = [measured(data.validation, some, logits) for some in rows]
    return float(np.mean([value for value in values if value is not None]))


def _ndcg_of_queries(table: LabelledPairDataset, rows: Int64, logits: Float32) -> float | None:
    """Return the mean over queries; None if no candidate of any is relevant."""
    qrels: Qrels = {}
    scores: dict[str, dict[str, float]] = {}
    for group in np.unique(table.groups[rows]).tolist():
        own = rows[table.groups[rows] == group]
        if table.labels[own].any():
            qrels[str(group)] = {str(row): int(table.labels[row]) for row in own.tolist()}
            best_first = own[np.argsort(-logits[own], kind="stable")]
            scores[str(group)] = in_order(map(str, best_first.tolist()))
    return float(np.mean(ndcg_at_10(scores, qrels))) if qrels else None


def _auc(table: LabelledPairDataset, rows: Int64, logits: Float32) -> float:
    return measure_pairs(logits[rows], table.labels[rows] > 0, 0.0)[AUC]


def _facts(corpora: Sequence[RerankCorpus], table: LabelledPairDataset) -> list[Mapping[str, Any]]:
    return [
        {
            "corpus": corpus.files.corpus.name,
            "documents": len(corpus.ids),
            "pairs": int((table.groups == number).sum()),
            "matches": int(table.labels[table.groups == number].sum()),
            "texts_seen": corpus.texts_seen,
        }
        for number, corpus in enumerate(corpora)
    ]


def _write(job: RerankJob, model: "MatchIgnition", report: TrainingReport) -> RerankerCheckpoint:
    """Write the reranker, its graphs, its curve and the report, atomically."""
    from encoder.export.create import write_trained_reranker
    from encoder.export.export_reranker import export_reranker

    with output_of(job, report) as output:
        checkpoint = write_trained_reranker(model, job.start, output.directory, job.start.name)
        if job.precisions:
            export_reranker(checkpoint, job.precisions)
    return load_reranker_checkpoint(job.output)
