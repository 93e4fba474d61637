"""The command that finds all pairs of similar documents: pairs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from encoder.checkpoint import vector_space
from index.search.calibrate import open_scoring
from index.search.pairs import find_pairs, open_pair_search
from index.search.records import Bounds
from service.cli.checks import OptionError, check_output_file, open_checkpoint
from service.cli.corpus_checks import check_data_directory
from service.cli.opening import opened
from service.cli.options import DataArgument, EncoderOption, console
from service.cli.progress import printable, show_progress
from service.match.pairs import pair_lines, validate_pair_bounds

_SECONDS_BETWEEN_POSITIONS = 1.0


def pairs(
    data: DataArgument,
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
    encoder: EncoderOption = None,
) -> None:
    """Write all pairs of similar documents; a server may be running."""
    check_data_directory(data, "DATA")
    check_output_file(output)
    loaded = open_checkpoint(encoder, data=data)
    scoring = open_scoring(loaded, data)
    bounds = Bounds(min_score, min_probability, max_false_positive_rate)
    for error in validate_pair_bounds(scoring.calibrator, bounds, min_vector_score):
        raise OptionError(f"--{error.parameter or ''}".replace("_", "-"), error.detail)
    with opened(data, vector_space(loaded), read_only=True) as directory:
        search = open_pair_search(
            directory, scoring, bounds, min_vector_score, collapse=collapse is not None
        )
        with show_progress(console) as progress, output.open("wb") as file:
            progress.started("comparing documents", search.tiles, unit="tiles")
            tiles = 0
            for done, found in find_pairs(search):
                file.write(pair_lines(found))
                progress.advanced(done - tiles)
                tiles = done
    console.print(printable(f"{output}: pairs of {len(search.vector_ids)} documents"))
