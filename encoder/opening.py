"""From the name of an encoder to its description, and from that to the encoder itself."""

from collections.abc import Sequence
from pathlib import Path

from encoder.checkpoint import (
    DEFAULT_CHECKPOINT,
    SENTENCE_MODEL,
    Checkpoint,
    find_checkpoint,
    load_checkpoint,
)
from encoder.encoder import Encoder
from encoder.onnx_encoder import OnnxEncoder
from encoder.sentence_model.encoder import SentenceModelEncoder
from encoder.sentence_model.folder import is_sentence_model, load_sentence_model
from encoder.sentence_model.name import is_url, parse_name
from encoder.sentence_model.server import ServerEncoder, describe_server


def find_encoder(name: str | None) -> Checkpoint:
    """Return the description of an encoder, without loading its graphs.

    Args:
        name: of a checkpoint that ships, a folder, a server, or a sentence model as
            `encoder.sentence_model.name` says; None for the default.

    Raises:
        CheckpointError: there is no such encoder, or it cannot be used.
    """
    if not name:
        return load_checkpoint(DEFAULT_CHECKPOINT)
    if is_url(name):
        return describe_server(parse_name(name))
    folder = find_checkpoint(Path(name))
    hub = not folder.exists() and ("#" in name or name.count("/") == 1)
    if hub or is_sentence_model(folder):
        return load_sentence_model(parse_name(name))
    return load_checkpoint(folder)


def open_encoder(
    checkpoint: Checkpoint,
    *,
    precision: str | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> Encoder:
    """Open an encoder; for the arguments see `OnnxEncoder`."""
    if "server" in checkpoint.model:
        return ServerEncoder(checkpoint)
    kind = SentenceModelEncoder if checkpoint.architecture == SENTENCE_MODEL else OnnxEncoder
    return kind(checkpoint, precision=precision, providers=providers, threads=threads)
