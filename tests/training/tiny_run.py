"""A run of the loop on a tiny model, in a process of its own where a test wants to kill it.

python tiny_run.py DIRECTORY STEP: trains in DIRECTORY and kills itself after STEP.
"""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from training import objectives
from training.batch import DocumentArrays, collate, encode, split
from training.loop import TrainingPlan, Validated, train
from training.losses import contrastive
from training.models.smith import Smith, SmithConfig
from training.pretraining import PretrainingHead, Vocabulary, pretraining_task
from training.progress import TrainingProgress
from training.recipe import TrainingRecipe
from training.run_files import RunState

RECIPE = {
    "name": "tiny", "steps": 30, "documents": 8, "max_blocks": 8,
    "validation_interval": 7, "checkpoint_interval": 5,
    "optimiser": {"document_rate": 0.003, "warm_up": 3, "decay": "cosine"},
    "objective": [{"kind": "halves", "temperature": "learned"}, {"kind": "sp", "weight": 0.5}],
}  # fmt: skip


class Killer(TrainingProgress):
    """Kills the process after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        if step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def run(directory: Path, kill_after: int = 0) -> tuple[Smith, RunState]:
    """Train in a directory, or go on there; dropout on, two objectives, one temperature learned."""
    torch.manual_seed(5)
    config = SmithConfig(
        vocabulary_size=50, block_length=8, max_blocks=8, hidden_size=16, intermediate_size=32,
        attention_heads=2, sentence_layers=1, document_layers=1, dimension=12, combine="attention",
        dropout=0.1,
    )  # fmt: skip
    model = Smith(config)
    temperature = objectives.Temperature("learned")
    head = PretrainingHead(config, Vocabulary(50, 1, 2, 0, 3), masked_blocks=2)
    random = np.random.default_rng(1)
    corpus = [DocumentArrays(random.normal(size=(8, 16))) for _ in range(20)]

    def halves(generator: torch.Generator) -> objectives.Task:
        rows = torch.randperm(20, generator=generator)[:8].tolist()
        first = [DocumentArrays(corpus[row].block_vectors[:4]) for row in rows]
        second = [DocumentArrays(corpus[row].block_vectors[4:]) for row in rows]

        def loss(vectors: torch.Tensor) -> torch.Tensor:
            return contrastive(vectors[:8] @ vectors[8:].T / temperature(), torch.eye(8).bool())

        return objectives.vectors_task([collate(part) for part in split(first + second, 4)], loss)

    def blocks(generator: torch.Generator) -> objectives.Task:
        rows = torch.randperm(20, generator=generator)[:8].tolist()
        return pretraining_task(collate([corpus[row] for row in rows]), head, generator)

    def validate(model: Smith) -> Validated:
        vectors = encode(model, collate(corpus[:2]))
        return Validated(-float(vectors[0] @ vectors[1]))

    plan = TrainingPlan(
        recipe=TrainingRecipe.parse(RECIPE),
        objectives=[
            objectives.Objective("halves", 1.0, halves, temperature),
            objectives.Objective("sp", 0.5, blocks, head),
        ],
        validate=validate,
        data_fingerprint="tiny",
    )
    return model, train(model, plan, directory, Killer(kill_after))


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
