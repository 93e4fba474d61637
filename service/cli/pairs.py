"""The command that finds all pairs of similar documents: pairs."""

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from encoder.atomic_files import write_atomically
from index.progress import Progress
from index.search.calibrate import open_scoring
from index.search.pairs import PairSearch, find_pairs, open_pair_search
from index.search.records import Bounds
from service.cli import checks, opening, options
from service.cli.checks import OptionError
from service.cli.opening import opened
from service.cli.options import console, resumable, say
from service.cli.progress import show_progress
from service.match.logic import pair_lines, validate_pair_bounds

_SECONDS_BETWEEN_POSITIONS = 1.0


def pairs(
    data: options.DataArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The JSON Lines file to write.")],
    min_score: Annotated[
        float | None, typer.Option(min=-1, max=1, help="No pair whose score is under this.")
    ] = None,
    min_vector_score: Annotated[
        float | None,
        typer.Option(
            min=-1,
            max=1,
            help="No pair whose document vectors have a cosine under this; by default what about "
            "1 of 1,000 random pairs reach.",
        ),
    ] = None,
    min_probability: Annotated[
        float | None, typer.Option(min=0, max=1, help="No pair under this probability.")
    ] = None,
    max_false_positive_rate: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="No pair whose score more of the random pairs reach."),
    ] = None,
    collapse: Annotated[
        Literal["families"] | None, typer.Option(help="Only one document of each family.")
    ] = None,
    encoder: options.EncoderOption = None,
) -> None:
    """Write all pairs of similar documents; run it again to resume; a server may be running."""
    opening.check_data_directory(data, "DATA")
    checks.output_file(output)
    loaded = opening.find_checkpoint(encoder, data=data)
    scoring = open_scoring(loaded, data)
    bounds = Bounds(min_score, min_probability, max_false_positive_rate)
    for error in validate_pair_bounds(scoring, bounds, min_vector_score):
        raise OptionError(f"--{error.parameter or ''}".replace("_", "-"), error.detail)
    with opened(data, loaded, read_only=True) as directory:
        search = open_pair_search(
            directory, scoring, bounds, min_vector_score, collapse=collapse is not None
        )
        run = {
            "data": str(data.resolve()),
            "bounds": [min_score, min_vector_score, min_probability, max_false_positive_rate],
            "collapse": collapse,
            "sequence": search.sequence,
            "calibration": scoring.version,
        }
        with resumable(), show_progress(console) as progress:
            _write(search, output, run, progress)
    say(f"{output}: pairs of {len(search.vector_ids)} documents")


def _write(search: PairSearch, output: Path, run: dict[str, Any], progress: Progress) -> None:
    """Write the pairs from the position of an interrupted run on, if there is one."""
    position = output.with_name(f"{output.name}.position")
    tile, size = _read_position(position, output, run)
    with output.open("r+b" if size else "wb") as file:
        file.seek(size)
        file.truncate()
        progress.started("comparing documents", search.tiles, unit="tiles")
        progress.advanced(tile)
        written = time.monotonic()
        for done, found in find_pairs(search, tile):
            file.write(pair_lines(found))
            progress.advanced(done - tile)
            now = time.monotonic()
            if done > tile and now - written >= _SECONDS_BETWEEN_POSITIONS:
                file.flush()
                os.fsync(file.fileno())
                write_atomically(position, json.dumps({**run, "tile": done, "bytes": file.tell()}))
                written = now
            tile = done
    position.unlink(missing_ok=True)


def _read_position(position: Path, output: Path, run: dict[str, Any]) -> tuple[int, int]:
    """Return how many tiles an interrupted run has done, and the bytes of their pairs."""
    if not position.exists():
        return 0, 0
    try:
        found = json.loads(position.read_text(encoding="utf-8"))
        tile, size = int(found.pop("tile")), int(found.pop("bytes"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise OptionError("--output", f"{position}: is damaged: delete it") from error
    if found != run:
        reason = "is of other options or documents, or another calibration: delete it to begin anew"
        raise OptionError("--output", f"{position}: {reason}")
    if not output.exists() or output.stat().st_size < size:
        raise OptionError("--output", f"{output}: its pairs are gone: delete {position}")
    return tile, size
