"""Failures of the disk, as distinct from damage: what cannot be read or written now may be sound.

A full disk, a failing one, and a limit of the system look like damage to who only sees that a file
cannot be read. To restore a backup or to delete files is wrong then.
"""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from index.errors import StorageError, StorageFullError

LEAST_FREE = 2**20  # bytes; with less, SQLite can open no file that it would have to grow

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FAILED = frozenset(
    {
        *(errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EPERM),
        *(errno.ENOMEM, errno.ENXIO, errno.ENODEV, errno.ESTALE),
    }
)
_PRIMARY = 0xFF  # of SQLite's extended result codes
_FAILED_CODES = frozenset(
    {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}
)


def storage_error(path: Path, error: BaseException) -> StorageError | None:
    """Return the failure of the disk that an error, or a cause of it, reports; None if none."""
    for one in _causes(error):
        if isinstance(one, StorageError):
            return one
        if isinstance(one, OSError) and one.errno in (_FULL | _FAILED):
            kind = StorageFullError if one.errno in _FULL else StorageError
            return kind(path, os.strerror(one.errno or 0))
        code = getattr(one, "sqlite_errorcode", None) if isinstance(one, sqlite3.Error) else None
        if code is None or code == sqlite3.SQLITE_IOERR_SHORT_READ:  # cut off
            continue
        if code == sqlite3.SQLITE_CANTOPEN and not path.is_file():
            continue
        if code & _PRIMARY == sqlite3.SQLITE_FULL:
            return StorageFullError(path, str(one))
        if code & _PRIMARY in _FAILED_CODES:
            # SQLite says of some writes only that they failed.
            return (StorageFullError if is_full(path) else StorageError)(path, str(one))
    return None


def is_full(path: Path) -> bool:
    """Return whether the file system of a file has no room for SQLite to work."""
    try:
        return shutil.disk_usage(path.parent).free < LEAST_FREE
    except OSError:
        return False


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
