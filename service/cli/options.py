"""What commands share: their options, an encoder, an open data directory, output."""

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
from encoder.alignment.checkpoint_space import open_space
from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError
from encoder.onnx_encoder import OnnxEncoder
from encoder.selection.block_selection import open_document_tokenizer
from encoder.selection.reading_share import WHOLE, with_reading_share
from encoder.tokenizer import BlockTokenizer
from index.adapt import read_corpus_adapter
from index.directory.data_directory import DataDirectory, open_data_directory, with_share_of
from index.store.filters import Filter
from index.vectors.faiss.gpu import allow_gpu
from service.api.schemas.filter import FilterBody, FilterField
from service.cli.checks import OptionError, open_checkpoint
from service.configuration.device import DeviceSettings
from service.configuration.store import StoreSettings
from service.configuration.vectors import VectorSettings

OK, INPUT_SKIPPED, USAGE, INTERRUPTED = 0, 1, 2, 130
DEFAULT_DATA = Path("longmatch-data")
RESUMABLE = "stopped: run the same command again to resume"

# No markup: printed paths, ids and titles are the user's.
console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)

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
DataOption = Annotated[
    Path,
    typer.Option(envvar="LONGMATCH_DATA", help="The data directory; created if it is missing."),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LONGMATCH_CHECKPOINT",
        help="A checkpoint directory, or the name of one that ships: best (the default) or fast.",
    ),
]
PrecisionOption = Annotated[
    str | None, typer.Option(help="int8, fp16 or fp32; by default the best one for the device.")
]
ProviderOption = Annotated[
    list[str] | None, typer.Option("--provider", help="cuda, cpu, …; may be repeated.")
]
BlocksOption = Annotated[
    Path | None,
    typer.Option(help="A folder to keep block vectors in, so that the next run is fast."),
]
RerankerOption = Annotated[
    Path | None,
    typer.Option(
        envvar="LONGMATCH_RERANKER",
        help="The directory of a reranker, or the name of one that ships.",
    ),
]
ReadingShareOption = Annotated[
    float | None,
    typer.Option(
        envvar="LONGMATCH_READING_SHARE",
        help="Share of the sentence blocks to encode, selected by their words; by default that of "
        "the data directory, 1 for a new one.",
    ),
]
SharedOption = Annotated[
    bool,
    typer.Option(
        "--allow-shared-documents",
        help="Train even if documents of validation or test pairs, or texts equal to theirs, are "
        "in training too: validation figures are then optimistic.",
    ),
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="By default one for each core.")]


FILTER_HELP = (
    "Only documents whose metadata matches this, as in POST /match: "
    '{"field": "year", "range": {"gte": 2020}}.'
)
_FILTER: TypeAdapter[FilterBody] = TypeAdapter(FilterField)


def parse_filter(text: str) -> Filter:
    """Parse a filter.

    Raises:
        OptionError: it is not JSON, or not a valid filter; says where and why.
    """
    try:
        return _FILTER.validate_python(json.loads(text)).to_filter()
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"/{part}" for part in first["loc"])
        detail = first.get("ctx", {}).get("error", first["msg"])
        raise OptionError("--filter", f"#{place} {detail}") from error
    except (ValueError, RecursionError) as error:
        raise OptionError("--filter", f"is not JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint whose graphs are loaded."""

    checkpoint: Checkpoint
    tokenizer: BlockTokenizer
    encoder: OnnxEncoder


def load(
    checkpoint: Path | None,
    precision: str | None,
    providers: list[str] | None,
    threads: int | None,
    data: Path | None = None,
    reading_share: float | None = None,
) -> Loaded:
    """Load a checkpoint, its tokenizer and its graphs, for a data directory if there is one.

    The directory has an adapter, perhaps, and a reading share, which is also that of a new one.

    Raises:
        OptionError: there is no such checkpoint, precision or provider.
        EncoderError: the checkpoint or the adapter is damaged, or a graph does not load.
    """
    devices = DeviceSettings()
    allow_gpu(devices.index_gpu)
    opened = with_reading(open_checkpoint(checkpoint, precision, providers), data, reading_share)
    encoder = OnnxEncoder(
        opened,
        precision=precision,
        providers=providers,
        threads=threads,
        adapter=read_corpus_adapter(data, opened) if data else None,
        engine_cache=devices.engine_cache,
    )
    encoder.warm_up()
    return Loaded(opened, open_document_tokenizer(opened), encoder)


def with_reading(checkpoint: Checkpoint, data: Path | None, share: float | None) -> Checkpoint:
    """Return a checkpoint with this reading share, by default with that of a data directory.

    Raises:
        OptionError: it is no share, or the checkpoint encodes every sentence block.
    """
    try:
        if data is None:
            return with_reading_share(checkpoint, WHOLE if share is None else share)
        return with_share_of(data, checkpoint, share, StoreSettings().database)
    except (CheckpointError, ValueError) as error:
        raise OptionError("--reading-share", error) from error


def print_json(value: object) -> None:
    """Print a result as JSON to standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


@contextmanager
def opened(
    data: Path,
    space: VectorSpace | OnnxEncoder,
    *,
    read_only: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Iterator[DataDirectory]:
    """Open a data directory, and close it at the end of a block.

    To write documents it takes an encoder, or a space and the checkpoint that it is of.
    """
    allow_gpu(DeviceSettings().index_gpu)
    if isinstance(space, OnnxEncoder):
        checkpoint = space.checkpoint
    alignment = None
    if checkpoint is not None and not read_only:
        alignment = open_space(checkpoint)
    directory = open_data_directory(
        data,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=read_only,
        alignment=alignment,
        milvus=VectorSettings().milvus,
        database=StoreSettings().database,
    )
    try:
        yield directory
    finally:
        directory.close()
