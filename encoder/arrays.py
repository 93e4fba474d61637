"""Names of NumPy arrays by their element type, for type hints; shapes stand in docstrings."""

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
