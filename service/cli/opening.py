"""What commands check and open: corpora, an encoder, a data directory, a filter.

Apart from `service.cli.checks`, which a server needs: this imports what reads documents.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from encoder.alignment.space import open_space
from encoder.checkpoint import WHOLE, Checkpoint, VectorSpace, vector_space, with_reading_share
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from index.build import NO_DOCUMENT
from index.corpus.reader import Corpus, read_corpus, require_suffix
from index.directory.data_directory import (
    STORE_FILE,
    DataDirectory,
    locked,
    open_data_directory,
    remember_encoder,
    swap_is_pending,
    with_share_of,
)
from index.document import Document
from index.errors import DataDirectoryInUseError, FingerprintMismatchError
from index.store.schema import has_store, read_space
from service.cli import checks
from service.cli.checks import OptionError, read_option
from service.settings import Settings


def load(
    name: str | None, *, data: Path | None = None, reading_share: float | None = None
) -> Encoder:
    """Open an encoder, for a data directory if there is one, which must be of its vectors."""
    return start_encoder(find_checkpoint(name, data=data, reading_share=reading_share))


def find_checkpoint(
    name: str | None, *, data: Path | None = None, reading_share: float | None = None
) -> Checkpoint:
    """Find an encoder, and check it before it is opened.

    A data directory has a reading share, which is also that of a new one.

    Raises:
        FingerprintMismatchError: the data directory has other vectors.
    """
    checkpoint = with_reading(checks.open_checkpoint(name, data=data), data, reading_share)
    if data and has_documents(data):
        stored, new = space_of(data).fingerprint, vector_space(checkpoint).fingerprint
        if stored != new:
            raise FingerprintMismatchError(stored, new)
    return checkpoint


def start_encoder(checkpoint: Checkpoint) -> Encoder:
    """Open the encoder of a checkpoint as the settings say, and encode with it once."""
    settings = Settings()
    encoder = open_encoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
    )
    encoder.warm_up()
    return encoder


def has_documents(data: Path) -> bool:
    """Return whether there are documents of a data directory: in it, or in its database."""
    return has_store(data / STORE_FILE, Settings().database)


def space_of(data: Path) -> VectorSpace:
    """Return the space of the vectors of a data directory, which is not opened."""
    return read_space(data / STORE_FILE, Settings().database)


def with_reading(checkpoint: Checkpoint, data: Path | None, share: float | None) -> Checkpoint:
    """Return a checkpoint with this reading share, by default with that of a data directory."""
    if data is None:
        whole = WHOLE if share is None else share
        return read_option("--reading-share", with_reading_share, checkpoint, whole)
    database = Settings().database
    return read_option("--reading-share", with_share_of, data, checkpoint, share, database)


@contextmanager
def opened(
    data: Path, made_by: Checkpoint | VectorSpace, *, read_only: bool = False
) -> Iterator[DataDirectory]:
    """Open a data directory, and close it at the end of a block.

    To write documents it takes a checkpoint, for everything else the space of the vectors. What
    other servers have written to a database is followed, also to read, unless a server does that
    here.
    """
    settings = Settings()
    if read_only and settings.database is not None:
        with suppress(DataDirectoryInUseError), locked(data):
            read_only = False
    checkpoint = made_by if isinstance(made_by, Checkpoint) and not read_only else None
    space = vector_space(made_by) if isinstance(made_by, Checkpoint) else made_by
    directory = open_data_directory(
        data,
        fingerprint=space.fingerprint,
        dimension=space.dimension,
        read_only=read_only,
        alignment=None if checkpoint is None else open_space(checkpoint),
        engine=settings.engine,
        database=settings.database,
    )
    with closing(directory):
        if checkpoint is not None:
            remember_encoder(data, checkpoint)
        yield directory


def check_corpus(corpus: Corpus, option: str = "CORPUS") -> None:
    """Check that there is a corpus, without reading its documents."""
    read_option(option, read_corpus, corpus)


def check_some_document(corpus: Corpus) -> None:
    """Check that a corpus has something in it, reading up to its first document."""
    unread = []
    for item in read_corpus(corpus):
        if isinstance(item, Document) or item.lost:
            return
        unread.append(f"; {item.where}: {item.reason}")
    raise OptionError("CORPUS", f"{corpus}: {NO_DOCUMENT}{''.join(unread)}")


def check_document(path: Path, option: str = "FILE") -> None:
    """Check that a path is a file of a kind that can be read as one document."""
    checks.readable_file(path, option)
    read_option(option, require_suffix, path)


def check_data_directory(path: Path, option: str = "--data", instead: str | None = None) -> None:
    """Check that a path is a data directory, or one whose content was being replaced.

    With `instead`, which says what does the work there, one whose documents are in a PostgreSQL is
    refused.
    """
    if instead is not None and Settings().database is not None:
        raise OptionError(option, f"its documents are in LONGMATCH_DATABASE: {instead}")
    if not has_documents(path) and not swap_is_pending(path):
        raise OptionError(option, f"{path}: there is no data directory here")
