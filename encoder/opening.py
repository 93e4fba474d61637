"""From the name of an encoder to its description, and from that to the encoder itself."""

from collections.abc import Sequence
from pathlib import Path

from encoder.adapter import Adapter
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, find_checkpoint, load_checkpoint
from encoder.encoder import Encoder
from encoder.onnx_encoder import OnnxEncoder


def find_encoder(name: str | None) -> Checkpoint:
    """Return the description of an encoder, without loading its graphs.

    Args:
        name: of a checkpoint that ships, or a folder; None for the default.

    Raises:
        CheckpointError: there is no such encoder, or it cannot be used.
    """
    return load_checkpoint(find_checkpoint(Path(name)) if name else DEFAULT_CHECKPOINT)


def open_encoder(
    checkpoint: Checkpoint,
    *,
    precision: str | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    adapter: Adapter | None = None,
) -> Encoder:
    """Open an encoder; for the arguments see `OnnxEncoder`."""
    return OnnxEncoder(
        checkpoint, precision=precision, providers=providers, threads=threads, adapter=adapter
    )
