"""The alignment space of a checkpoint, for collections that are too small to have their own."""

from pathlib import Path

from encoder.alignment.space import AlignmentSpace, neutral_space, read_space, write_space
from encoder.checkpoint import ALIGNMENT, Checkpoint, read_verified, write_manifest
from encoder.errors import CheckpointError


def open_space(checkpoint: Checkpoint) -> AlignmentSpace:
    """Return the space of a checkpoint: of its training documents, or else the neutral one.

    Raises:
        CheckpointError: the file is damaged, or does not fit the block vectors.
    """
    if ALIGNMENT not in checkpoint.files:
        return neutral_space(checkpoint.block_dimension)
    path = checkpoint.directory / ALIGNMENT
    try:
        space = read_space(read_verified(checkpoint.directory, checkpoint.files, ALIGNMENT))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if len(space.mean) != checkpoint.block_dimension:
        raise CheckpointError(
            f"{path}: is for block vectors of {len(space.mean)} numbers, "
            f"not {checkpoint.block_dimension}"
        )
    return space


def write_checkpoint_space(directory: Path, space: AlignmentSpace) -> None:
    """Write the space into a checkpoint and update its manifest.

    Raises:
        OSError: a file cannot be written.
    """
    (directory / ALIGNMENT).write_bytes(write_space(space))
    write_manifest(directory)
