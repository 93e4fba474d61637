"""A trained model as a checkpoint."""

import json
import shutil
from pathlib import Path

from tokenizers import Tokenizer

from encoder.checkpoint import (
    CONFIG,
    SKETCH,
    TERMS,
    TOKENIZER,
    Checkpoint,
    load_checkpoint,
    read_verified,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.models.catalogue import Model
from encoder.models.smith import Smith
from encoder.models.weights import save_weights
from encoder.sketch import write_term_sketch
from encoder.term_channel import TermChannel
from encoder.terms import write_term_table
from encoder.training.masking import Vocabulary
from encoder.training.term_table import fold_projection


def write_trained(
    model: Model, channel: TermChannel, start: Checkpoint, directory: Path, name: str
) -> Checkpoint:
    """Write weights, configuration and tokenizer of a trained checkpoint, no graphs yet.

    The projection of the term channel is folded into its table.

    Args:
        model: trained.
        channel: its term channel; of width 0 where it has none.
        start: the checkpoint it was trained from, whose tokenizer and sizes it keeps.
        directory: made where it is missing.
        name: of the new checkpoint.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads(read_verified(start.directory, start.files, CONFIG))
    shutil.copyfile(start.directory / TOKENIZER, directory / TOKENIZER)
    if isinstance(model, Smith) and channel.table.width:
        write_term_table(directory / TERMS, fold_projection(model, channel.table))
        config |= {"dimension": model.config.dimension}
        config["model"] |= {
            "term_features": model.config.term_dimension,
            "term_dimension": model.config.term_dimension,
            "term_buckets": model.config.term_buckets,
            "sketch_dimension": model.config.sketch_dimension,
        }
        if channel.sketch.dimension:
            write_term_sketch(directory / SKETCH, channel.sketch)
    save_weights(model, directory)
    write_config(directory, config | {"name": name})
    write_manifest(directory)
    return load_checkpoint(directory)


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Read the token ids that masking has to know.

    Raises:
        CheckpointError: the tokenizer has no [MASK].
    """
    tokenizer = Tokenizer.from_buffer(
        read_verified(checkpoint.directory, checkpoint.files, TOKENIZER)
    )
    mask = tokenizer.token_to_id("[MASK]")
    if mask is None:
        raise CheckpointError(f"{checkpoint.directory / TOKENIZER} has no [MASK]")
    special = (checkpoint.start_token, checkpoint.end_token, checkpoint.padding_token, mask)
    return Vocabulary(int(checkpoint.model["vocabulary_size"]), mask, special)
