"""Parquet: a document a row. Read in small batches, never as a whole."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from index.corpus.records import check_columns, record_of
from index.errors import CorpusError, DocumentError

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

PARQUET_SUFFIX = ".parquet"
_ROWS = 8  # of a batch, which is in memory; texts are long
_BUFFER_BYTES = 2**20


def count_rows(path: Path) -> int:
    """Return the number of rows, which the file says at its end."""
    with _open(path) as file:
        rows: int = file.metadata.num_rows
        return rows


def read_rows(path: Path) -> Iterator[dict[str, Any] | str]:
    """Yield each row as a record of JSON values, or the reason why it cannot be one."""
    with _open(path) as file:
        check_columns(file.schema_arrow.names)
        for group in range(file.num_row_groups):  # so that no batch is of a damaged one, too
            for batch in file.iter_batches(_ROWS, row_groups=[group], use_threads=False):
                yield from _records(batch)


@contextmanager
def _open(path: Path) -> "Iterator[pyarrow.parquet.ParquetFile]":
    import pyarrow
    import pyarrow.parquet

    try:
        # Buffered, so that a group of rows is read in pieces.
        with pyarrow.parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            yield file
    except pyarrow.ArrowMemoryError as error:
        raise MemoryError from error
    except (pyarrow.ArrowException, OSError) as error:
        raise CorpusError(f"is damaged, or not Parquet: {error}") from error


def _records(batch: "pyarrow.RecordBatch") -> Iterator[dict[str, Any] | str]:
    for row in range(batch.num_rows):
        try:
            values = {
                name: _value(name, batch.column(number)[row])
                for number, name in enumerate(batch.schema.names)
            }
            yield record_of(values)
        except DocumentError as error:
            yield str(error)


def _value(column: str, scalar: Any) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts="strict")
    except (ValueError, OverflowError, KeyError) as error:  # among them text that is not UTF-8
        raise DocumentError(column, f"cannot be read: {error}") from error
