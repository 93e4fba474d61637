"""Writing a trained model as a checkpoint."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from encoder.checkpoint import (
    CONFIG,
    HASHED_TERMS,
    TERMS,
    TOKENIZER,
    Checkpoint,
    load_checkpoint,
    read_verified,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.terms.term_channel import TermChannel, write_hashed_terms
from encoder.terms.term_table import write_term_table
from encoder.tokenizer import open_tokenizer
from training.models.architecture import EncoderModel
from training.models.smith import DocumentEncoder
from training.models.weights import save_weights
from training.objectives import Vocabulary
from training.term_channel import fold_projection

# What training may change of the configuration of a start, besides its term channel.
_OF_SENTENCE_LEVEL = ("sentence_layers", "pooled_layers", "pooled_tokens")


def write_trained(
    model: EncoderModel, channel: TermChannel, start: Checkpoint, directory: Path, name: str
) -> Checkpoint:
    """Write weights, configuration and tokenizer of a trained checkpoint, no graphs yet.

    The projection of the term channel is folded into its table.

    Args:
        channel: its term channel; of width 0 where it has none.
        start: the checkpoint it was trained from, whose tokenizer and sizes it keeps.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads(read_verified(start.directory, start.files, CONFIG))
    shutil.copyfile(start.directory / TOKENIZER, directory / TOKENIZER)
    if channel.table.width:
        table = fold_projection(cast(DocumentEncoder, model.document_encoder), channel.table)
        write_term_table(directory / TERMS, table)
        config |= {"dimension": model.config.dimension}
        config["model"] |= {
            "term_features": table.width,
            "term_dimension": table.width,
            "term_buckets": channel.vocabulary.buckets,
            "sketch_dimension": channel.hashed.dimension,
        }
        if channel.hashed.dimension:
            write_hashed_terms(directory / HASHED_TERMS, channel.hashed)
    sizes: dict[str, Any] = asdict(model.config)
    config["model"] |= {name: sizes[name] for name in _OF_SENTENCE_LEVEL if name in sizes}
    save_weights(model, directory)
    write_config(directory, config | {"name": name})
    write_manifest(directory)
    return load_checkpoint(directory)


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Read the token ids that masking needs."""
    mask = open_tokenizer(checkpoint).token_to_id("[MASK]")
    if mask is None:
        raise CheckpointError(f"{checkpoint.directory / TOKENIZER} has no [MASK]")
    special = (checkpoint.start_token, checkpoint.end_token, checkpoint.padding_token, mask)
    return Vocabulary(int(checkpoint.model["vocabulary_size"]), mask, special)
