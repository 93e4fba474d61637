"""A data directory in a process that only searches, and follows the process that writes.

The store itself is always read as it is. Each process has its index over the vectors, and the
frequencies that norms of words are computed by: both are brought to the state of the writing
process, so that both processes give the same answers.
"""

from dataclasses import dataclass

from index.directory.data_directory import DataDirectory
from index.errors import SnapshotError
from index.lexical.frequencies import Frequencies
from index.vectors.snapshot import Manifest


@dataclass(frozen=True, slots=True)
class WriterState:
    """How far the writing process is: what a search in another process must see.

    Attributes:
        sequence: of the store that its index holds.
        manifest: of its index.
        counted: changes of the words of the store when the frequencies were counted by which norms
            are computed.
    """

    sequence: int
    manifest: Manifest
    counted: int


def writer_state(data: DataDirectory) -> WriterState:
    """Return how far the process is that has a data directory open for writing."""
    counted = data.store.lexical.frequencies.changes
    return WriterState(data.index.sequence, data.index.manifest, counted)


def follow_words(data: DataDirectory, state: WriterState, frequencies: Frequencies | None) -> bool:
    """Bring the words to the present state of the store, with norms as the writer has them.

    Args:
        data: opened for reading only.
        state: of the writer.
        frequencies: of the writer, if it gives them.

    Returns:
        Whether norms are as the writer has them; if not, it has to give its frequencies.
    """
    words = data.store.lexical
    words.catch_up()
    if not state.counted:
        return True  # the writer has no copy of the words, or there are none
    if words.frequencies.changes != state.counted and frequencies is not None:
        words.use_frequencies(frequencies)
        return True
    return words.frequencies.changes == state.counted


def follow_vectors(data: DataDirectory, state: WriterState) -> bool:
    """Bring the index over the vectors to the state of the writer, or beyond.

    Returns:
        Whether it is there; it is not where the index of the writer was never published, or is
        being published now.

    Raises:
        StoreError: the store cannot be read.
    """
    index, writer = data.index, state.manifest
    if index.manifest.generation < writer.generation:
        try:
            index.load_snapshot()
        except SnapshotError:
            return False
    if index.sequence < state.sequence:
        index.catch_up()
    if index.manifest.generation > writer.generation:
        return True  # published since
    index.set_nprobe(writer.nprobe, generation=writer.generation)
    return index.manifest == writer
