"""The pairs that a step of reranker training samples."""

from pathlib import Path

import numpy as np
import pytest
import torch

from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from training.data.rerank_pairs import LabelledPairDataset
from training.errors import TrainingRecipeError
from training.export.create import load_reranker_model
from training.jobs.train_reranker import rerank_objective
from training.models.match_ignition import MatchIgnition
from training.objectives import step_generator
from training.recipe import RerankRecipe

BATCH = 64


@pytest.fixture(scope="module")
def checkpoint(tiny_reranker: Path) -> RerankerCheckpoint:
    return load_reranker_checkpoint(tiny_reranker)


@pytest.fixture
def model(checkpoint: RerankerCheckpoint) -> MatchIgnition:
    return load_reranker_model(checkpoint)


def recipe(**changes: float) -> RerankRecipe:
    return RerankRecipe.model_validate({"kind": "rerank", **changes})


def tables_of(counts: list[tuple[int, int]]) -> list[LabelledPairDataset]:
    """Make pairs of 12 and 12 tokens; the ids say of which corpus they are, and whether a match."""
    tables = []
    for corpus, numbers in enumerate(counts):
        labels = np.repeat([0, 1], numbers)
        sides = [np.full(12, 200 + 2 * corpus + label) for label in labels]
        pairs = [(side, side) for side in sides]
        tables.append(LabelledPairDataset(pairs, labels.astype(np.float32), np.zeros(len(pairs))))
    return tables


class Watching:
    """Stands where the model does and keeps what it is given."""

    def __init__(self, model: MatchIgnition) -> None:
        self.seen: list[torch.Tensor] = []
        model.register_forward_pre_hook(lambda _, inputs: self.seen.append(inputs[0]))


def sampled(
    objective_recipe: RerankRecipe,
    tables: list[LabelledPairDataset],
    checkpoint: RerankerCheckpoint,
    model: MatchIgnition,
) -> np.ndarray:
    watching = Watching(model)
    objective = rerank_objective(objective_recipe, tables, checkpoint, BATCH)
    for step in range(8):
        with torch.no_grad():
            losses = objective.sample(step_generator(0, step))(model)
        assert torch.isfinite(losses["pairs"])
    return torch.cat(watching.seen).numpy()


def test_a_pair_is_cut_to_the_tokens_of_the_recipe(
    checkpoint: RerankerCheckpoint, model: MatchIgnition
) -> None:
    tables = tables_of([(5, 5)])
    assert sampled(recipe(tokens=13), tables, checkpoint, model).shape == (8 * BATCH, 13)
    assert sampled(recipe(tokens=48), tables, checkpoint, model).shape == (8 * BATCH, 27)


def test_matches_and_corpora_have_their_shares(
    checkpoint: RerankerCheckpoint, model: MatchIgnition
) -> None:
    tables = tables_of([(7, 9), (50, 144)])
    words = sampled(recipe(), tables, checkpoint, model)[:, 1] - 200
    assert (words % 2).mean() == pytest.approx(0.5, abs=0.06)
    assert (words // 2).mean() == pytest.approx(12 / (3 + 12), abs=0.06)


def test_a_corpus_of_one_label_is_refused(checkpoint: RerankerCheckpoint) -> None:
    with pytest.raises(TrainingRecipeError, match="0 pairs that match and 4 that do not"):
        rerank_objective(recipe(), tables_of([(4, 0)]), checkpoint, BATCH)
