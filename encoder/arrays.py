"""Names of NumPy arrays by their element type, and the files that hold arrays.

The names are for type hints; shapes stand in docstrings.
"""

import io
import zlib
from collections.abc import Mapping
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.typing import NDArray

Float16 = NDArray[np.float16]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int8 = NDArray[np.int8]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]
UInt32 = NDArray[np.uint32]
UInt64 = NDArray[np.uint64]
Bool = NDArray[np.bool_]


def unit(rows: Float32) -> Float32:
    """Return rows [N, D] at unit norm; a row of zeros stays as it is."""
    norms: Float32 = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.maximum(norms, np.float32(1e-12))).astype(np.float32, copy=False)


MAX_ARRAY_BYTES = 2**30  # of one file, unpacked: many times what any checkpoint needs


def read_arrays(data: bytes) -> Mapping[str, Any]:
    """Read the arrays of an .npz file by name.

    Raises:
        ValueError: it is something else or damaged, holds Python objects or numbers that are not
            finite, or is larger than `MAX_ARRAY_BYTES` when it is unpacked.
    """
    try:
        with ZipFile(io.BytesIO(data)) as archive:
            size = sum(member.file_size for member in archive.infolist())
        if size > MAX_ARRAY_BYTES:
            raise ValueError(f"has {size} bytes when it is unpacked, more than {MAX_ARRAY_BYTES}")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            found = dict(arrays)
    except (EOFError, MemoryError, OSError, RuntimeError, TypeError, BadZipFile) as error:
        raise ValueError(f"is no file of arrays: {error}") from error
    except zlib.error as error:
        raise ValueError(f"is damaged: {error}") from error
    for name, array in found.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
    return found
