"""The objective of a reranker: binary cross-entropy of labelled pairs (Match-Ignition, 3.3)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from encoder.arrays import Float32, Int64
from encoder.atomic_files import replace_durably
from encoder.models.architecture import RerankerModel
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.pair_tokenizer import SPECIAL_TOKENS, PairTokens, collate_pairs, join_pair
from training.errors import TrainingRecipeError
from training.objectives import ModelTask, Objective
from training.recipe import RerankRecipe

_FIELDS = ("tokens", "ends", "firsts", "labels", "groups", "scores")


@dataclass(frozen=True, slots=True)
class LabelledPairDataset:
    """P pairs.

    Attributes:
        tokens: uint32[T], token ids of all pairs, without special tokens.
        ends: Int64[P], where each pair ends in them.
        firsts: Int64[P], how many tokens of each pair are of its first text.
        labels: Float32[P], 1 for a match and 0 for none.
        groups: Int64[P], the corpus of a training pair, the query of a validation pair.
        scores: Float32[P] of the first stage; 0 where nothing was ranked.
    """

    tokens: NDArray[Any]
    ends: Int64
    firsts: Int64
    labels: Float32
    groups: Int64
    scores: Float32

    def __len__(self) -> int:
        return len(self.ends)

    def pair(
        self,
        row: int,
        start_token: int,
        end_token: int,
        *,
        swapped: bool = False,
        most: int | None = None,
    ) -> PairTokens:
        """Return one pair; swapped, its second text comes first; no more than `most` of each."""
        begin = int(self.ends[row - 1]) if row else 0
        cut = begin + int(self.firsts[row])
        sides = self.tokens[begin:cut].tolist(), self.tokens[cut : int(self.ends[row])].tolist()
        first, second = sides[::-1] if swapped else sides
        return join_pair(first[:most], second[:most], start_token, end_token)


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """The tokens of one pair, and what is known of it; see `LabelledPairDataset`."""

    tokens: PairTokens
    label: float
    group: int
    score: float = 0.0


def make_pair_table(pairs: Iterable[LabelledPair]) -> LabelledPairDataset:
    """Make a table of pairs."""
    tokens: list[NDArray[Any]] = []
    firsts: list[int] = []
    known: list[tuple[float, int, float]] = []
    for pair in pairs:
        words = pair.tokens.special == 0
        tokens.append(pair.tokens.input_ids[words].astype(np.uint32))
        firsts.append(int((pair.tokens.token_types[words] == 0).sum()))
        known.append((pair.label, pair.group, pair.score))
    return LabelledPairDataset(
        tokens=np.concatenate([np.empty(0, dtype=np.uint32), *tokens]),
        ends=np.cumsum([len(one) for one in tokens], dtype=np.int64),
        firsts=np.array(firsts, dtype=np.int64),
        labels=np.array([label for label, _, _ in known], dtype=np.float32),
        groups=np.array([group for _, group, _ in known], dtype=np.int64),
        scores=np.array([score for _, _, score in known], dtype=np.float32),
    )


def join_tables(tables: Sequence[LabelledPairDataset]) -> LabelledPairDataset:
    """Concatenate tables."""
    starts = np.cumsum([0, *(len(table.tokens) for table in tables[:-1])])
    ends = [table.ends + start for table, start in zip(tables, starts, strict=True)]
    columns = {name: np.concatenate([getattr(table, name) for table in tables]) for name in _FIELDS}
    return LabelledPairDataset(**(columns | {"ends": np.concatenate(ends)}))


def write_pair_table(path: Path, table: LabelledPairDataset) -> None:
    """Write a table as .npz, atomically.

    Raises:
        OSError: it could not be written.
    """
    unfinished = path.with_name(path.name + ".partial")
    with unfinished.open("wb") as file:
        np.savez(file, **{name: getattr(table, name) for name in _FIELDS})
    replace_durably(unfinished, path)


def read_pair_table(path: Path) -> LabelledPairDataset:
    """Read what `write_pair_table` wrote.

    Raises:
        OSError, ValueError, KeyError: it is missing or damaged.
    """
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return LabelledPairDataset(**{name: arrays[name] for name in _FIELDS})


_PAIRS_A_PASS = 32


def rerank_objective(
    recipe: RerankRecipe, table: LabelledPairDataset, checkpoint: RerankerCheckpoint, pairs: int
) -> Objective[RerankerModel]:
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

    def sample(generator: torch.Generator) -> ModelTask[RerankerModel]:
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
    model: RerankerModel, table: LabelledPairDataset, checkpoint: RerankerCheckpoint
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
) -> ModelTask[RerankerModel]:
    inputs = [torch.from_numpy(array) for array in collate_pairs(pairs, padding_token)]
    targets = torch.from_numpy(labels)

    def loss(model: RerankerModel) -> Tensor:
        device = next(model.parameters()).device
        logits = model(*(tensor.to(device) for tensor in inputs))
        return F.binary_cross_entropy_with_logits(logits.float(), targets.to(device))

    return ModelTask(loss)


def _by_length(table: LabelledPairDataset) -> Iterator[list[int]]:
    lengths = np.diff(table.ends, prepend=0)
    order = np.argsort(-lengths, kind="stable").tolist()
    for start in range(0, len(order), _PAIRS_A_PASS):
        yield order[start : start + _PAIRS_A_PASS]
