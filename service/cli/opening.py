"""What commands open: an encoder, a data directory; and the filter that they are given."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from encoder.adapter import VectorSpace
from encoder.alignment.space import open_space
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import WHOLE, Checkpoint, with_reading_share
from encoder.errors import CheckpointError
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.adapt import read_corpus_adapter
from index.directory.data_directory import DataDirectory, open_data_directory, with_share_of
from index.search.records import EncodedQuery
from index.sqlite.block_vectors import block_vectors_of
from index.store.filters import Filter
from index.vectors.faiss.gpu import allow_gpu
from service.api.schemas.filter import FilterBody, FilterField
from service.cli.checks import OptionError, open_checkpoint
from service.settings import Settings

_FILTER: TypeAdapter[FilterBody] = TypeAdapter(FilterField)


def parse_filter(text: str) -> Filter:
    """Parse a filter."""
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
    precision: str | None = None,
    providers: list[str] | None = None,
    threads: int | None = None,
    data: Path | None = None,
    reading_share: float | None = None,
) -> Loaded:
    """Load a checkpoint, its tokenizer and its graphs, for a data directory if there is one.

    The directory has an adapter, perhaps, and a reading share, which is also that of a new one.
    """
    devices = Settings()
    allow_gpu(devices.index_gpu)
    opened = with_reading(open_checkpoint(checkpoint, precision, providers), data, reading_share)
    encoder = OnnxEncoder(
        opened,
        precision=precision,
        providers=providers,
        threads=threads,
        adapter=read_corpus_adapter(data, opened) if data else None,
    )
    encoder.warm_up()
    return Loaded(opened, open_document_tokenizer(opened), encoder)


def encode_query(loaded: Loaded, blocks: SentenceBlocks, text: str, title: str) -> EncodedQuery:
    """Encode the sentence blocks of a text to search for it."""
    made = loaded.encoder.encode([blocks])
    vectors = made.block_vectors[0]
    offsets = block_vectors_of(blocks, vectors).offsets
    return EncodedQuery(text, made.document_vectors[0], title, vectors, offsets=offsets)


def with_reading(checkpoint: Checkpoint, data: Path | None, share: float | None) -> Checkpoint:
    """Return a checkpoint with this reading share, by default with that of a data directory."""
    try:
        if data is None:
            return with_reading_share(checkpoint, WHOLE if share is None else share)
        return with_share_of(data, checkpoint, share)
    except (CheckpointError, ValueError) as error:
        raise OptionError("--reading-share", error) from error


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
    allow_gpu(Settings().index_gpu)
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
    )
    try:
        yield directory
    finally:
        directory.close()
