"""Parquet: a document a row. Read in small batches, never as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index.corpus.records import check_columns
from index.corpus.remote import RemoteFile
from index.errors import CorpusError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

PARQUET_SUFFIX = ".parquet"
_ROWS = 8  # of a batch, which is in memory; texts are long
_BUFFER_BYTES = 2**20


def count_rows(path: Path | RemoteFile) -> int:
    """Return the number of rows, which the file says at its end; CorpusError as `read_rows`."""
    with _open(path) as file:
        rows: int = file.metadata.num_rows
        return rows


def read_rows(path: Path | RemoteFile) -> Iterator[dict[str, Any] | CorpusError]:
    """Yield the values of each row, with an error in place of one that cannot be read.

    After the rows before a damage it yields what is wrong.

    Raises:
        CorpusError: it is not Parquet, or lacks a column; names the file.
    """
    begun = False
    try:
        with _open(path) as file:
            check_columns(file.schema_arrow.names, f"{path}: ")
            for group in range(file.num_row_groups):  # so that no batch is of a damaged one, too
                for batch in file.iter_batches(_ROWS, row_groups=[group], use_threads=False):
                    begun = True
                    for row in range(batch.num_rows):
                        yield {
                            name: _value(batch.column(number)[row])
                            for number, name in enumerate(batch.schema.names)
                        }
    except CorpusError as error:
        if not begun:
            raise
        yield error


@contextmanager
def _open(path: Path | RemoteFile) -> "Iterator[pyarrow.parquet.ParquetFile]":
    import pyarrow
    import pyarrow.parquet

    try:
        # Buffered, so that a group of rows is read in pieces.
        with (
            path.open("rb") as source,
            pyarrow.parquet.ParquetFile(
                source, buffer_size=_BUFFER_BYTES, pre_buffer=False
            ) as file,
        ):
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"{path}: is damaged, or not Parquet: {error}") from error


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError) as error:  # among them text that is not UTF-8
        return error
