"""What commands open: an encoder, a data directory; and the filter that they are given."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from encoder.alignment.space import open_space
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import WHOLE, Checkpoint, VectorSpace, vector_space, with_reading_share
from encoder.encoder import Encoder
from encoder.errors import CheckpointError
from encoder.opening import open_encoder
from index.directory.data_directory import (
    STORE_FILE,
    DataDirectory,
    locked,
    open_data_directory,
    with_share_of,
)
from index.directory.encoder_name import remember_encoder
from index.errors import DataDirectoryInUseError, FingerprintMismatchError
from index.search.records import EncodedQuery
from index.sqlite.block_vectors import block_vectors_of
from index.store.filters import Filter
from index.store.schema import has_store, read_space
from service.cli.checks import OptionError, open_checkpoint
from service.match.filter import FilterBody, FilterField
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


def load(
    name: str | None,
    precision: str | None = None,
    providers: list[str] | None = None,
    threads: int | None = None,
    data: Path | None = None,
    reading_share: float | None = None,
) -> Encoder:
    """Open an encoder, for a data directory if there is one, which must be of its vectors.

    The directory has a reading share, which is also that of a new one.
    """
    found = open_checkpoint(name, precision, providers, data=data)
    checkpoint = with_reading(found, data, reading_share)
    if data:
        require_same_space(data, vector_space(checkpoint))
    encoder = open_encoder(checkpoint, precision=precision, providers=providers, threads=threads)
    encoder.warm_up()
    return encoder


def require_same_space(data: Path, space: VectorSpace) -> None:
    """Refuse an encoder of other vectors than a data directory has, before it is opened.

    Raises:
        FingerprintMismatchError: it is another one.
    """
    stored = space_of(data).fingerprint if has_documents(data) else space.fingerprint
    if stored != space.fingerprint:
        raise FingerprintMismatchError(stored, space.fingerprint)


def has_documents(data: Path) -> bool:
    """Return whether there are documents of a data directory: in it, or in its database."""
    return has_store(data / STORE_FILE, Settings().database)


def space_of(data: Path) -> VectorSpace:
    """Return the space of the vectors of a data directory, which is not opened."""
    return read_space(data / STORE_FILE, Settings().database)


def encode_query(loaded: Encoder, blocks: SentenceBlocks, text: str, title: str) -> EncodedQuery:
    """Encode the sentence blocks of a text to search for it."""
    made = loaded.encode([blocks])
    vectors = made.block_vectors[0]
    offsets = block_vectors_of(blocks, vectors).offsets
    return EncodedQuery(text, made.document_vectors[0], title, vectors, offsets=offsets)


def with_reading(checkpoint: Checkpoint, data: Path | None, share: float | None) -> Checkpoint:
    """Return a checkpoint with this reading share, by default with that of a data directory."""
    try:
        if data is None:
            return with_reading_share(checkpoint, WHOLE if share is None else share)
        return with_share_of(data, checkpoint, share, Settings().database)
    except (CheckpointError, ValueError) as error:
        raise OptionError("--reading-share", error) from error


@contextmanager
def opened(
    data: Path,
    space: VectorSpace | Encoder,
    *,
    read_only: bool = False,
    checkpoint: Checkpoint | None = None,
) -> Iterator[DataDirectory]:
    """Open a data directory, and close it at the end of a block.

    To write documents it takes an encoder, or a space and the checkpoint that it is of. What other
    servers have written to a database is followed, also to read, unless a server does that here.
    """
    settings = Settings()
    if read_only and settings.database is not None:
        with suppress(DataDirectoryInUseError), locked(data):
            read_only = False
    if not isinstance(space, VectorSpace):
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
        engine=settings.engine,
        database=settings.database,
    )
    try:
        if checkpoint is not None and not read_only:
            remember_encoder(data, checkpoint)
        yield directory
    finally:
        directory.close()
