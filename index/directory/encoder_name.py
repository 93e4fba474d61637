"""The name of the encoder that made the vectors of a data directory: later commands need none."""

import json
from pathlib import Path

from encoder.atomic_files import write_atomically
from encoder.checkpoint import Checkpoint

ENCODER_FILE = "encoder.json"


def remembered_encoder(path: Path) -> str | None:
    """Return the name that a data directory remembers; None where it has none, or is damaged."""
    try:
        return str(json.loads((path / ENCODER_FILE).read_bytes())["encoder"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None  # the fingerprint of the vectors says whether another encoder fits


def remember_encoder(path: Path, checkpoint: Checkpoint) -> None:
    """Write the name of an encoder into a data directory whose vectors it has made.

    Raises:
        OSError: it cannot be written.
    """
    if remembered_encoder(path) != checkpoint.source:
        write_atomically(path / ENCODER_FILE, json.dumps({"encoder": checkpoint.source}) + "\n")
