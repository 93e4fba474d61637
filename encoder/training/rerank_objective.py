"""The objective of a reranker: binary cross-entropy of labelled pairs (Match-Ignition, 3.3)."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from encoder.models.match_ignition import MatchIgnition
from encoder.noise_filter import Float32
from encoder.pair_reader import SPECIAL_TOKENS, Int64, PairTokens, collate_pairs
from encoder.pair_table import PairTable
from encoder.reranker_checkpoint import RerankerCheckpoint
from encoder.training.errors import TrainingRecipeError
from encoder.training.objectives import ModelTask, Objective
from encoder.training.recipe import ObjectiveRecipe

_PAIRS_A_PASS = 32


def rerank_objective(
    recipe: ObjectiveRecipe, table: PairTable, checkpoint: RerankerCheckpoint, pairs: int
) -> Objective[MatchIgnition]:
    """Make the objective of labelled pairs.

    A step draws pairs with replacement: a corpus is as likely as the root of its matches is large,
    so that a few of them are not learned by heart; a match has the recipe's share, and either text
    comes first. The recipe's `tokens` cut a pair: shorter ones are learned from faster.

    Args:
        recipe: of kind "rerank".
        table: the pairs; the group of a pair is its corpus.
        checkpoint: whose special tokens join a pair.
        pairs: of one batch.

    Raises:
        TrainingRecipeError: a corpus has no match, or nothing but matches.
    """
    groups = [_rows_by_label(table, group) for group in np.unique(table.groups)]
    positives = recipe.number("positives")
    roots = np.sqrt([len(matches) for _, matches in groups])
    most = max(1, (int(recipe.number("tokens")) - SPECIAL_TOKENS) // 2)

    def draw(generator: torch.Generator) -> ModelTask[MatchIgnition]:
        seed = int(torch.randint(2**63 - 1, (1,), generator=generator))
        chance = np.random.default_rng(seed)
        rows = []
        for _ in range(pairs):
            others, matches = groups[chance.choice(len(groups), p=roots / roots.sum())]
            rows.append(int(chance.choice(matches if chance.random() < positives else others)))
        drawn = [
            table.pair(
                row,
                checkpoint.start_token,
                checkpoint.end_token,
                swapped=bool(chance.integers(2)),
                most=most,
            )
            for row in rows
        ]
        return _task(drawn, table.labels[rows], checkpoint.padding_token)

    return Objective(recipe.name, recipe.weight, draw)


def judge_pairs(model: MatchIgnition, table: PairTable, checkpoint: RerankerCheckpoint) -> Float32:
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


def _rows_by_label(table: PairTable, group: int) -> tuple[Int64, Int64]:
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

    def loss(model: MatchIgnition) -> Tensor:
        device = next(model.parameters()).device
        logits = model(*(tensor.to(device) for tensor in inputs))
        return F.binary_cross_entropy_with_logits(logits.float(), targets.to(device))

    return ModelTask(loss)


def _by_length(table: PairTable) -> Iterator[list[int]]:
    lengths = np.diff(table.ends, prepend=0)
    order = np.argsort(-lengths, kind="stable").tolist()
    for start in range(0, len(order), _PAIRS_A_PASS):
        yield order[start : start + _PAIRS_A_PASS]
