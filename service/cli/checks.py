"""Checks that commands make before any work: before a graph is loaded or a document is read.

Each raises `OptionError`, which `main` prints as one line that begins with the option. None of them
changes anything on the disk.
"""

import errno
import os
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, TypeVar

from encoder.checkpoint import PRECISIONS, Checkpoint
from encoder.errors import EncoderError
from encoder.opening import find_encoder
from encoder.reranker.checkpoint import RERANKER_PRECISIONS, load_reranker_checkpoint
from index.directory.data_directory import remembered_encoder
from index.errors import BackupError, CorpusError

P = ParamSpec("P")
T = TypeVar("T")


class OptionError(Exception):
    """An option or an argument of a command cannot be used."""

    def __init__(self, option: str, reason: object) -> None:
        """Name the option as it is typed; an argument, as the help text shows it."""
        super().__init__(f"{option}: {reason}")


def read_option(option: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Read or make what an option says; what is wrong with it names the option."""
    try:
        return read(*args, **kwargs)
    except (EncoderError, CorpusError, BackupError, ValueError) as error:
        raise OptionError(option, error) from error


def readable_file(path: Path, option: str) -> None:
    """Check that a file is there and can be read."""
    if not path.exists():
        raise OptionError(option, f"{path}: there is no such file")
    if not path.is_file():
        raise OptionError(option, f"{path}: is not a file")
    if not os.access(path, os.R_OK):
        raise OptionError(option, f"{path}: cannot be read")


def output_file(path: Path, option: str = "--output") -> None:
    """Check that a file can be written, in a folder that exists."""
    _check_folder(path.absolute().parent, option)
    if path.is_dir():
        raise OptionError(option, f"{path}: is a folder, not a file")


def output_folder(path: Path, option: str) -> None:
    """Check that files can be written into a folder, which may have to be created."""
    folder = path.absolute()
    while not folder.exists():
        folder = folder.parent
    _check_folder(folder, option)


def new_path(path: Path, option: str = "--output") -> None:
    """Check that a folder or file can be created: it does not exist, and its folder does."""
    if path.exists():
        raise OptionError(option, f"{path}: exists already, and is never replaced")
    _check_folder(path.absolute().parent, option)


def precisions(names: Sequence[str], known: Sequence[str] = PRECISIONS) -> None:
    """Check the names of the precisions to export."""
    for name in names:
        if name not in known:
            raise OptionError("--precision", f"{name!r} is none of {', '.join(known)}")


def address(host: str, port: int) -> None:
    """Check that a server can listen on an address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise OptionError("--host", f"{host}: is not an address: {error.strerror}") from error
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            option = "--host" if error.errno == errno.EADDRNOTAVAIL else "--port"
            raise OptionError(option, f"{host}:{port}: {error.strerror}") from error


def open_checkpoint(
    name: str | Path | None, option: str = "--encoder", data: Path | None = None
) -> Checkpoint:
    """Find an encoder, by default that of a data directory; no graph is loaded."""
    if name is None and data is not None:
        name = remembered_encoder(data)
    return read_option(option, find_encoder, None if name is None else str(name))


def reranker(name: Path) -> None:
    """Check that a reranker is there and can be served."""
    checkpoint = read_option("--reranker", load_reranker_checkpoint, name)
    if not checkpoint.precisions:
        having = " or ".join(RERANKER_PRECISIONS)
        raise OptionError("--reranker", f"{checkpoint.directory}: has no graph ({having})")


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise OptionError(option, f"{folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(option, f"{folder}: cannot be written to")
