"""What commands share: their options, exit statuses and output."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from index.document import printable
from service.settings import PREFIX, Settings

OK, INPUT_SKIPPED, USAGE, INTERRUPTED = 0, 1, 2, 130
DEFAULT_DATA = Path("longmatch-data")

# No markup: printed paths, ids and titles are the user's.
console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
results = Console(markup=False, highlight=False)  # on standard output


def _setting(name: str) -> Any:
    """Return the option of a setting."""
    description = Settings.model_fields[name].description
    return typer.Option(envvar=f"{PREFIX}{name.upper()}", help=description)


CorpusArgument = Annotated[
    Path,
    typer.Argument(help="A folder of files, JSON Lines, Parquet, a BEIR folder, or one file."),
]
CorpusOrUrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="CORPUS",
        help="A folder of files, JSON Lines, Parquet, a BEIR folder, one file, also by a URL as "
        "s3://bucket/corpus.jsonl (extra `remote`); or a database: sqlite:///file.db, "
        "postgresql://user@host/database.",
    ),
]
DataArgument = Annotated[Path, typer.Argument(envvar="LONGMATCH_DATA", help="The data directory.")]
DataOption = Annotated[Path, _setting("data")]
EncoderOption = Annotated[str | None, _setting("encoder")]
BlocksOption = Annotated[
    Path | None,
    typer.Option(help="A folder to keep block vectors in, so that the next run is fast."),
]
RerankerOption = Annotated[
    Path | None, typer.Option(envvar="LONGMATCH_RERANKER", help="The directory of a reranker.")
]
ReadingShareOption = Annotated[float | None, _setting("reading_share")]
SharedOption = Annotated[
    bool,
    typer.Option(
        "--allow-shared-documents",
        help="Train even if documents of validation or test pairs, or texts equal to theirs, are "
        "in training too: validation figures are then optimistic.",
    ),
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter",
        metavar="JSON",
        help="Only documents whose metadata matches this, as in POST /match: "
        '{"field": "year", "range": {"gte": 2020}}.',
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrecisionsOption = Annotated[
    list[str], typer.Option("--precision", help="int8, fp16 or fp32; may be repeated.")
]


def say(text: str) -> None:
    """Print a line to standard error, of which nothing garbles a terminal."""
    console.print(printable(text))


@contextmanager
def resumable(then: str = "") -> Iterator[None]:
    """End the command where it is interrupted in the block, and say how it goes on."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(f"stopped: run the same command again to resume{then}")
        raise typer.Exit(INTERRUPTED) from None


def print_json(value: object) -> None:
    """Print a result as JSON to standard output, with escapes for what would garble a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=2).replace("\x7f", "\\u007f")
    kept = (part if part.isprintable() or part == "\n" else json.dumps(part)[1:-1] for part in text)
    sys.stdout.write("".join(kept) + "\n")
