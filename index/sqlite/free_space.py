"""Return the space of deleted documents to the file system."""

from dataclasses import dataclass

from index.sqlite.connections import SQLiteConnections


@dataclass(frozen=True, slots=True)
class Space:
    """The size of the store's file: `pages` of `page_size` bytes, `free` of which are unused."""

    pages: int
    free: int
    page_size: int

    @property
    def free_bytes(self) -> int:
        """Unused bytes."""
        return self.free * self.page_size

    @property
    def free_share(self) -> float:
        """Unused share of the file."""
        return self.free / max(1, self.pages)


def reclaim(connections: SQLiteConnections, pages: int) -> Space:
    """Return up to `pages` free pages to the file system in one transaction, which blocks writers.

    The file shrinks when SQLite next moves its log into it.

    Args:
        connections: to the store.
        pages: at most so many; 0 only measures.

    Returns:
        The space afterwards.

    Raises:
        StoreError: the file cannot be written.
    """
    if pages > 0:
        with connections.writing() as connection:
            # Python steps a statement without columns only once, which frees one page.
            for _ in range(pages):
                connection.execute("PRAGMA incremental_vacuum(1)")
    with connections.reading() as connection:
        counted = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return Space(*map(int, counted))
