"""The objective of a reranker: binary cross-entropy of labelled pairs (Match-Ignition, 3.3)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from encoder.arrays import Float32, Int64
from encoder.models.match_ignition import MatchIgnition
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import SPECIAL_TOKENS, PairTokens, collate_pairs
from training.data.labelled_pairs import LabelledPairDataset
from training.errors import TrainingRecipeError
from training.objectives import ModelTask, Objective
from training.recipe_tables.objectives import RerankRecipe

_PAIRS_A_PASS = 32


def rerank_objective(
    recipe: RerankRecipe, table: LabelledPairDataset, checkpoint: RerankerCheckpoint, pairs: int
) -> Objective[MatchIgnition]:
    """Make the objective of labelled pairs.

    A step samples pairs with replacement. The probability of a corpus is proportional to the square
    root of its matches, so that few matches are not memorised; the share of matches is the
    recipe's, and either text comes first. Pairs are truncated to the recipe's `tokens`, which makes
    steps faster.

    Args:
        recipe: of the objective.
        table: the pairs; the group of a pair is its corpus.
        checkpoint: whose special tokens join a pair.
        pairs: of one batch.

    Raises:
        TrainingRecipeError: a corpus has no match, or nothing but matches.
    """
    groups = [_rows_by_label(table, group) for group in np.unique(table.groups)]
    positives = recipe.positives
    roots = np.sqrt([len(matches) for _, matches in groups])
    most = max(1, (recipe.tokens - SPECIAL_TOKENS) // 2)

    def sample(generator: torch.Generator) -> ModelTask[MatchIgnition]:
        seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
        chance = np.random.default_rng(seed)
        rows = []
        for _ in range(pairs):
            others, matches = groups[chance.choice(len(groups), p=roots / roots.sum())]
            rows.append(int(chance.choice(matches if chance.random() < positives else others)))
        chosen = [
            table.pair(
                row,
                checkpoint.start_token,
                checkpoint.end_token,
                swapped=bool(chance.integers(2)),
                most=most,
            )
            for row in rows
        ]
        return _task(chosen, table.labels[rows], checkpoint.padding_token)

    return Objective(recipe.name, recipe.weight, sample)


def score_pairs(
    model: MatchIgnition, table: LabelledPairDataset, checkpoint: RerankerCheckpoint
) -> Float32:
    """Return the logits Float32[P] of the pairs of a table, by the model without gradients."""
    logits = np.empty(len(table), dtype=np.float32)
    device = next(model.parameters()).device
    for rows in _by_length(table):
        pairs = [table.pair(row, checkpoint.start_token, checkpoint.end_token) for row in rows]
        inputs = collate_pairs(pairs, checkpoint.padding_token)
        with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
            found = model(*(torch.from_numpy(array).to(device) for array in inputs))
        logits[rows] = found.float().cpu().numpy()
    return logits


def _rows_by_label(table: LabelledPairDataset, group: int) -> tuple[Int64, Int64]:
    here = table.groups == group
    others = np.flatnonzero(here & (table.labels < 0.5))
    matches = np.flatnonzero(here & (table.labels >= 0.5))
    if not len(others) or not len(matches):
        raise TrainingRecipeError(
            f"corpus {group} has {len(matches)} pairs that match and {len(others)} that do not: "
            "training a reranker takes both"
        )
    return others, matches


def _task(
    pairs: Sequence[PairTokens], labels: Float32, padding_token: int
) -> ModelTask[MatchIgnition]:
    inputs = [torch.from_numpy(array) for array in collate_pairs(pairs, padding_token)]
    targets = torch.from_numpy(labels)

    def losses(model: MatchIgnition) -> dict[str, Tensor]:
        device = next(model.parameters()).device
        logits = model(*(tensor.to(device) for tensor in inputs))
        found = F.binary_cross_entropy_with_logits(logits.float(), targets.to(device))
        return {"pairs": found}

    return ModelTask(losses)


def _by_length(table: LabelledPairDataset) -> Iterator[list[int]]:
    lengths = np.diff(table.ends, prepend=0)
    order = np.argsort(-lengths, kind="stable").tolist()
    for start in range(0, len(order), _PAIRS_A_PASS):
        yield order[start : start + _PAIRS_A_PASS]
