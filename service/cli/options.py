"""What the commands share: options, an opened checkpoint, output."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from encoder.adapter import VectorSpace
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.adapt import read_corpus_adapter
from index.directory.data_directory import DataDirectory, open_data_directory
from index.store.filters import Filter
from service.api.schemas.filter import FilterBody, FilterField

FILTER_HELP = (
    "Give only documents for whose metadata this holds, as in POST /match: "
    '{"field": "year", "range": {"gte": 2020}}.'
)
_FILTER: TypeAdapter[FilterBody] = TypeAdapter(FilterField)


def parse_filter(text: str) -> Filter:
    """Read a filter.

    Raises:
        BadParameter: it is not JSON, or refused; says where and why.
    """
    try:
        return _FILTER.validate_python(json.loads(text)).to_filter()
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"/{part}" for part in first["loc"])
        detail = first.get("ctx", {}).get("error", first["msg"])
        raise typer.BadParameter(f"#{place} {detail}", param_hint="--filter") from error
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"is not JSON: {error}", param_hint="--filter") from error


OK, REFUSED, USAGE, INTERRUPTED = 0, 1, 2, 130
DEFAULT_DATA = Path("longmatch-data")

# No markup: what is printed holds paths, ids and titles of users.
console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

CorpusArgument = Annotated[
    Path, typer.Argument(help="A folder of files, JSON Lines, a BEIR folder, or one file.")
]
DataOption = Annotated[
    Path, typer.Option(envvar="LONGMATCH_DATA", help="The data directory; made when missing.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(envvar="LONGMATCH_CHECKPOINT", help="Another checkpoint than the one that ships."),
]
PrecisionOption = Annotated[
    str | None, typer.Option(help="int8, fp16 or fp32; the best for the device when not given.")
]
ProviderOption = Annotated[
    list[str] | None, typer.Option("--provider", help="cuda, cpu, …; may be given again.")
]
BlocksOption = Annotated[
    Path | None,
    typer.Option(help="A folder that keeps block vectors: the next run is quick."),
]
RerankerOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LONGMATCH_RERANKER", help="The directory of a reranker, or one that ships by name."
    ),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="One for each core by default.")]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint ready to encode."""

    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    encoder: OnnxEncoder


def load(
    checkpoint: Path | None,
    precision: str | None,
    providers: list[str] | None,
    threads: int | None,
    data: Path | None = None,
) -> Loaded:
    """Open a checkpoint with its tokenizer and its graphs, adapted as `data` is."""
    opened = load_checkpoint(checkpoint or DEFAULT_CHECKPOINT)
    encoder = OnnxEncoder(
        opened,
        precision=precision,
        providers=providers,
        threads=threads,
        adapter=read_corpus_adapter(data, opened) if data else None,
    )
    encoder.warm_up()
    return Loaded(opened, BlockTokenizer(opened), encoder)


def print_json(value: object) -> None:
    """Print a result to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def opened(
    data: Path, space: VectorSpace | OnnxEncoder, *, read_only: bool = False
) -> Iterator[DataDirectory]:
    """Open a data directory for the time of a command."""
    directory = open_data_directory(
        data, fingerprint=space.fingerprint, dimension=space.dimension, read_only=read_only
    )
    try:
        yield directory
    finally:
        directory.close()
