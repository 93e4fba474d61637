"""The body of an upload: a file of JSON Lines, compressed or not."""

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

from longmatch.requests import Document, document_body
from longmatch.steps import FileBody

NDJSON = "application/x-ndjson"

_GZIP_LEVEL = 3  # of 9: higher ones cost much time for texts, and save little


def open_upload(
    source: Path | str | Iterable[Document],
    files: ExitStack,
    *,
    compress: bool,
    progress: Callable[[int, int], None] | None,
) -> tuple[FileBody, dict[str, str]]:
    """Return the body of an upload and its headers.

    Args:
        source: a path, or documents, which are written to a temporary file.
        files: closes the temporary file.
        compress: as gzip, what is not compressed yet.
        progress: see `FileBody`.

    Raises:
        OSError: the file cannot be read, or the temporary one cannot be written.
    """
    headers = {"Content-Type": NDJSON}
    compressed = isinstance(source, Path | str) and Path(source).suffix == ".gz"
    if compress or compressed:
        headers["Content-Encoding"] = "gzip"
    if isinstance(source, Path | str) and (compressed or not compress):
        path = Path(source)
        body = FileBody(path, path.stat().st_size, progress)
    else:
        file = files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is entered
        _write(source, file, compress=compress)
        body = FileBody(file, file.tell(), progress)
    headers["Content-Length"] = str(body.size)
    return body, headers


def _write(source: Path | str | Iterable[Document], file: IO[bytes], *, compress: bool) -> None:
    if not compress:
        _copy(source, file)
        return
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as packed:
        _copy(source, cast(IO[bytes], packed))


def _copy(source: Path | str | Iterable[Document], file: IO[bytes]) -> None:
    if isinstance(source, Path | str):
        with Path(source).open("rb") as opened:
            shutil.copyfileobj(opened, file)
        return
    for document in source:
        line = json.dumps(document_body(document), ensure_ascii=False)
        # What is no character is an error of this line, which the job reports.
        file.write(line.encode(errors="surrogatepass") + b"\n")
