"""Validation of pretraining: the loss of its own objectives on documents that it does not learn."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from encoder.alignment.space import at_equal_distances
from encoder.checkpoint import Checkpoint
from index.errors import CorpusError
from training.data.batch_specs import DocumentSlice
from training.data.corpus import TrainingCorpus
from training.data.splits import VALID

if TYPE_CHECKING:
    from encoder.models.architecture import EncoderModel
    from training.collate import Reader
    from training.loop import Validated
    from training.objectives import Objective
    from training.recipe import TrainingRecipe

LOSS = "loss of held-out documents"
_DOCUMENTS = 256  # that a validation reads, at most, unless a batch has more


def held_out_batches(data: Sequence[TrainingCorpus], size: int) -> list[list[DocumentSlice]]:
    """Choose documents of the validation part, the same in every call, in batches.

    All batches have `size` documents: to find a masked sentence block is easier in a smaller one.
    Only if there are fewer documents in all, the one batch has these.

    Args:
        data: corpora; the number of a part's archive is their place.
        size: documents of a batch.

    Raises:
        CorpusError: there is none.
    """
    held_out = [
        DocumentSlice(number, int(one.encoded.rows[row]))
        for number, one in enumerate(data)
        for row in one.rows(VALID).tolist()
    ]
    if not held_out:
        raise CorpusError(
            "pretraining stops by the loss of documents that it does not learn, and the "
            "validation part has none"
        )
    chosen = at_equal_distances(len(held_out), min(len(held_out), max(size, _DOCUMENTS)))
    parts = [held_out[place] for place in chosen.tolist()]
    full = max(1, len(parts) // size)
    return [parts[number * size : (number + 1) * size] for number in range(full)]


def held_out_loss(
    recipe: "TrainingRecipe",
    objectives: "Sequence[Objective[EncoderModel]]",
    batches: Sequence[Sequence[DocumentSlice]],
    reader: "Reader",
    start: Checkpoint,
) -> "Callable[[EncoderModel], Validated]":
    """Return what measures the loss of a recipe whose objectives all pretrain.

    Masks and permutations depend on the recipe's seed and the place of the batch alone, so every
    validation of a run asks the same. No step of a run has them: steps count from 1.

    Args:
        recipe: of the run.
        objectives: made of its objectives, in their order.
        batches: of `held_out_batches`.
        reader: of these documents.
        start: the checkpoint of the run, for its vocabulary.

    Returns:
        model -> the weighted sum of the losses, each the mean over batches, and all of its parts.

    Raises:
        TrainingRecipeError: no block is read from its tokens, which masked words need.
        CheckpointError: the tokenizer has no [MASK].
    """
    import torch

    from training.collate import pretraining_task
    from training.loop import Validated
    from training.objectives import step_generator
    from training.trained_checkpoint import read_vocabulary

    vocabulary = read_vocabulary(start)

    def measure(model: "EncoderModel") -> Validated:
        device = next(model.parameters()).device
        found: dict[str, list[float]] = {}
        for stream, (table, made) in enumerate(
            zip(recipe.objectives, objectives, strict=True), start=1
        ):
            for number, parts in enumerate(batches):
                generator = step_generator(recipe.seed, 0, stream, number)
                task = pretraining_task(table, parts, reader, made.head, vocabulary, generator)
                bf16 = recipe.precision == "bf16"
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    losses = {name: loss.item() for name, loss in task.losses(model).items()}
                losses[""] = sum(losses.values())
                for name, loss in losses.items():
                    found.setdefault(f"{made.name}.{name}".rstrip("."), []).append(loss)
        means = {name: float(np.mean(losses)) for name, losses in found.items()}
        total = sum(one.weight * means[one.name] for one in objectives)
        return Validated(total, dict(sorted(means.items())))

    return measure
