"""Writing a trained model as a checkpoint."""

import json
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
)
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from encoder.terms.term_channel import TermChannel, write_hashed_terms
from encoder.terms.term_table import write_term_table
from training.export.create import write_files
from training.models.architecture import EncoderModel
from training.models.match_ignition import MatchIgnition
from training.models.smith import DocumentEncoder
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
    config = json.loads(read_verified(start.directory, start.files, CONFIG))
    directory.mkdir(parents=True, exist_ok=True)
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
    tokenizer = read_verified(start.directory, start.files, TOKENIZER)
    write_files(directory, tokenizer, model, config | {"name": name})
    return load_checkpoint(directory)


def write_trained_reranker(
    model: MatchIgnition, start: RerankerCheckpoint, directory: Path, name: str
) -> RerankerCheckpoint:
    """Write a trained reranker, no graph yet: all but its weights is of the one it began as."""
    config = json.loads(read_verified(start.directory, start.files, CONFIG))
    tokenizer = read_verified(start.directory, start.files, TOKENIZER)
    write_files(directory, tokenizer, model, config | {"name": name})
    return load_reranker_checkpoint(directory)
