"""Term features of the documents that training reads."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from encoder.block_archive import BlockArchive
from encoder.drawn import Part
from encoder.term_channel import TermChannel
from encoder.terms import Float32


class TermReader:
    """Computes the term features of parts; those of whole documents only once.

    The words of a whole document are all counted, however few of its blocks training reads.
    """

    def __init__(self, archives: Sequence[BlockArchive], channel: TermChannel) -> None:
        self._archives = archives
        self._channel = channel
        self._whole: dict[tuple[int, int], NDArray[np.float16]] = {}

    def __call__(self, part: Part) -> Float32:
        """Return the features [F] of a part."""
        blocks = self._archives[part.archive].blocks
        if part.places is not None:
            whole = blocks(part.row)
            return self._channel.features([whole[place] for place in part.places])
        key = (part.archive, part.row)
        if key not in self._whole:
            self._whole[key] = self._channel.features(blocks(part.row)).astype(np.float16)
        return self._whole[key].astype(np.float32)
