"""The job of `longmatch lab train` for a reranker, which learns from links or labelled pairs."""

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from encoder.arrays import Float32, Int64
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from encoder.reranker.pair_tokenizer import PADDING, SPECIAL_TOKENS, PairTokens
from evaluation.judgements import Qrels
from evaluation.metrics import AUC, in_order, measure_pairs, ndcg_at_10
from index.progress import Progress
from training.collate import training_device
from training.data.corpus_folder import new_folder
from training.data.files import RerankJob, read_recipe, time_limit
from training.data.rerank_pairs import (
    QUERIES,
    LabelledPairDataset,
    RerankData,
    prepare_rerank_data,
    read_rerank_corpora,
    rerank_fingerprint,
)
from training.errors import TrainingRecipeError
from training.export.create import load_reranker_model
from training.export.export_reranker import export_reranker
from training.jobs.output import RUN, TrainingReport, make_report, write_report
from training.loop import TrainingPlan, Validated, train
from training.models.match_ignition import MatchIgnition
from training.objectives import Objective, Task
from training.progress import TrainingProgress
from training.recipe import RerankRecipe
from training.trained_checkpoint import write_trained_reranker

_PAIRS_A_PASS = 32
_MATCHES = 0.5  # share of the sampled pairs of a step


def rerank_objective(
    recipe: RerankRecipe,
    tables: Sequence[LabelledPairDataset],
    checkpoint: RerankerCheckpoint,
    pairs: int,
) -> Objective[MatchIgnition]:
    """Make the objective of labelled pairs.

    A step samples pairs with replacement. The probability of a corpus is proportional to the square
    root of its matches, so that few matches are not memorised; half of the pairs match, or the
    share of the corpus if pairs are given, and either text comes first. Pairs are truncated to the
    recipe's `tokens`, which makes steps faster.

    Args:
        tables: the pairs of each corpus.
        checkpoint: whose special tokens join a pair.
    """
    rows = [_rows_by_label(table, number) for number, table in enumerate(tables)]
    roots = np.sqrt([len(matches) for _, matches in rows])
    most = max(1, (recipe.tokens - SPECIAL_TOKENS) // 2)
    first, last = checkpoint.start_token, checkpoint.end_token

    def sample(generator: torch.Generator) -> Task[MatchIgnition]:
        seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
        chance = np.random.default_rng(seed)
        chosen, labels = [], np.empty(pairs, dtype=np.float32)
        for number in range(pairs):
            corpus = chance.choice(len(tables), p=roots / roots.sum())
            table, (others, matches) = tables[corpus], rows[corpus]
            share = len(matches) / (len(matches) + len(others))
            positives = share if recipe.pairs == "given" else _MATCHES
            row = int(chance.choice(matches if chance.random() < positives else others))
            swapped = bool(chance.integers(2))
            chosen.append(table.pair(row, first, last, swapped=swapped, most=most))
            labels[number] = table.labels[row]
        return _task(chosen, labels, checkpoint.padding_token)

    return Objective(recipe.kind, recipe.weight, sample)


def score_pairs(
    model: MatchIgnition, table: LabelledPairDataset, checkpoint: RerankerCheckpoint
) -> Float32:
    """Return the logits Float32[P] of the pairs of a table, by the model without gradients."""
    logits = np.empty(len(table), dtype=np.float32)
    device = model.device
    for rows in _by_length(table):
        pairs = [table.pair(row, checkpoint.start_token, checkpoint.end_token) for row in rows]
        inputs = collate_pairs(pairs, checkpoint.padding_token)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            found = model(*(tensor.to(device) for tensor in inputs))
        logits[rows] = found.float().cpu().numpy()
    return logits


def _rows_by_label(table: LabelledPairDataset, number: int) -> tuple[Int64, Int64]:
    others, matches = np.flatnonzero(table.labels < 0.5), np.flatnonzero(table.labels >= 0.5)
    if not len(others) or not len(matches):
        raise TrainingRecipeError(
            f"corpus {number} has {len(matches)} pairs that match and {len(others)} that do not: "
            "training a reranker takes both"
        )
    return others, matches


def _task(pairs: Sequence[PairTokens], labels: Float32, padding_token: int) -> Task[MatchIgnition]:
    inputs = collate_pairs(pairs, padding_token)
    targets = torch.from_numpy(labels)

    def losses(model: MatchIgnition) -> dict[str, Tensor]:
        device = model.device
        logits = model(*(tensor.to(device) for tensor in inputs))
        found = F.binary_cross_entropy_with_logits(logits.float(), targets.to(device))
        return {"pairs": found}

    return losses


def _by_length(table: LabelledPairDataset) -> Iterator[list[int]]:
    lengths = np.array([sum(map(len, texts)) for texts in table.texts])
    order = np.argsort(-lengths, kind="stable").tolist()
    for start in range(0, len(order), _PAIRS_A_PASS):
        yield order[start : start + _PAIRS_A_PASS]


def train_reranker(
    job: RerankJob, progress: Progress, training_progress: TrainingProgress
) -> RerankerCheckpoint:
    """Train a reranker, or resume training, and write it with its graphs."""
    recipe = read_recipe(job)
    if job.precisions and job.start.model["importance"] == "random":
        raise TrainingRecipeError(
            f'{job.start.directory}: importance = "random" drops other words each time: no graph '
            "computes what the model computes, so that it cannot be served"
        )
    objective = cast(RerankRecipe, recipe.objectives[0])  # `read_recipe` rejects any other
    corpora = read_rerank_corpora(job.files, recipe.seed, allow_shared=job.allow_shared)
    data = prepare_rerank_data(corpora, job.start, objective, progress)
    model = load_reranker_model(job.start, {"dropout": recipe.dropout}).to(training_device())
    plan = TrainingPlan(
        recipe=recipe,
        objectives=[rerank_objective(objective, data.training, job.start, recipe.documents)],
        validate=lambda trained: Validated(
            measure(data, [score_pairs(trained, table, job.start) for table in data.validation])
        ),
        data_fingerprint=rerank_fingerprint(corpora, job.start),
        stop=time_limit(job.seconds),
    )
    state = train(model, plan, job.work / RUN, training_progress)
    facts = [
        corpus.found.facts()
        | {"sampled_pairs": len(table), "sampled_matches": int(table.labels.sum())}
        for corpus, table in zip(corpora, data.training, strict=True)
    ]
    report = make_report(job, recipe, data.figure, facts, state)
    return _write(job, model.cpu(), report)


def measure(data: RerankData, logits: Sequence[Float32]) -> float:
    """Return the figure of validation, the mean over corpora of equal weight.

    It is of the reranker alone. Fusion with the first stage would hide what it has learned early in
    training, when the first stage alone is much better. Relevant documents that are not among the
    candidates of a query are ignored.

    Args:
        data: whose validation is measured.
        logits: of each corpus, Float32[P] of its pairs.
    """
    measured = _ndcg_of_queries if data.figure == QUERIES else _auc
    values = [
        measured(table, of_pairs)
        for table, of_pairs in zip(data.validation, logits, strict=True)
        if table.labels.any()
    ]
    return float(np.mean(values))


def _ndcg_of_queries(table: LabelledPairDataset, logits: Float32) -> float:
    """Return the mean over the queries that have a relevant candidate."""
    qrels: Qrels = {}
    scores: dict[str, dict[str, float]] = {}
    for query in np.unique(table.queries).tolist():
        rows = np.flatnonzero(table.queries == query)
        if table.labels[rows].any():
            qrels[str(query)] = {str(row): int(table.labels[row]) for row in rows.tolist()}
            best_first = rows[np.argsort(-logits[rows], kind="stable")]
            scores[str(query)] = in_order(map(str, best_first.tolist()))
    return float(np.mean(ndcg_at_10(scores, qrels)))


def _auc(table: LabelledPairDataset, logits: Float32) -> float:
    return measure_pairs(logits, table.labels > 0, 0.0)[AUC]


def _write(job: RerankJob, model: MatchIgnition, report: TrainingReport) -> RerankerCheckpoint:
    """Write the reranker, its graphs, its curve and the report, atomically."""
    with new_folder(job.output) as directory:
        checkpoint = write_trained_reranker(model, job.start, directory, job.start.name)
        if job.precisions:
            export_reranker(checkpoint, job.precisions)
        write_report(job, report, directory)
    return load_reranker_checkpoint(job.output)


def collate_pairs(pairs: Sequence[PairTokens], padding_token: int) -> list[Tensor]:
    """Pad pairs to one batch: token ids, token types and special places, each int64 [N, T]."""
    padding = {"input_ids": padding_token, "token_types": 0, "special": PADDING}
    return [
        pad_sequence(
            [torch.from_numpy(getattr(pair, name)) for pair in pairs],
            batch_first=True,
            padding_value=value,
        )
        for name, value in padding.items()
    ]
