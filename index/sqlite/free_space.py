"""Giving the space of deleted documents back to the disk."""

from dataclasses import dataclass

from index.sqlite.connections import SQLiteConnections


@dataclass(frozen=True, slots=True)
class Space:
    """How much of the store's file is free: of `pages` pages of `page_size` bytes, `free` ones."""

    pages: int
    free: int
    page_size: int

    @property
    def free_bytes(self) -> int:
        """Bytes that hold nothing."""
        return self.free * self.page_size

    @property
    def free_share(self) -> float:
        """Share of the file that holds nothing."""
        return self.free / max(1, self.pages)


def reclaim(connections: SQLiteConnections, pages: int) -> Space:
    """Give up to `pages` free pages back to the disk in one transaction; writers wait for it.

    The file shrinks when SQLite next moves its log into it.

    Args:
        connections: to the store.
        pages: 0 only measures.

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
