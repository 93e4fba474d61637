"""A job: an upload, and how much of it has been indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EndState = Literal["done", "cancelled", "failed"]
JobState = Literal["waiting", "running"] | EndState

MAX_LISTED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that is not a valid document, and why.

    Attributes:
        line: counted from 1.
        pointer: JSON pointer into the line: "#/text"; "#" for the whole line.
        detail: what is wrong, without the value.
    """

    line: int
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file of JSON Lines, on the disk.

    Attributes:
        id: of the job that it becomes.
        size: bytes, decompressed.
        lines: number of lines that are not blank.
        digest: SHA-256 of the file.
    """

    id: str
    size: int
    lines: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as it is stored.

    Attributes:
        number: jobs of one client run in this order.
        id: its name for clients.
        state: waiting, running, or how it ended.
        size: bytes of the upload, decompressed.
        digest: SHA-256 of the upload.
        client: who sent it: jobs of one run in their order, those of different ones in turns.
        accepted: number of lines that are not blank.
        position: bytes of the upload that have been processed.
        line: lines that have been processed, including blank ones.
        indexed: documents stored.
        unchanged: how many of them had the same text before.
        truncated: how many of them were not read whole.
        failed: lines that are not valid documents.
        detail: why it failed, or what it waits for.
        created: ISO 8601 in UTC.
        ended: ISO 8601 in UTC; None while it has not ended.
    """

    number: int
    id: str
    state: JobState
    size: int
    digest: bytes
    client: str
    accepted: int
    position: int
    line: int
    indexed: int
    unchanged: int
    truncated: int
    failed: int
    detail: str | None
    created: str
    ended: str | None

    @property
    def has_ended(self) -> bool:
        """Whether it is done, cancelled or failed."""
        return self.state not in ("waiting", "running")

    @property
    def progress(self) -> float:
        """Share of the bytes of the upload that have been processed."""
        return round(self.position / self.size, 4)


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of one batch of an upload.

    Attributes:
        position: bytes of the upload that have been processed after it.
        line: lines that have been processed after it.
        indexed: documents stored by this step.
        unchanged: as in `Job`, of this step.
        truncated: as in `Job`, of this step.
        failed: lines of this step that are not valid documents.
        errors: the first of them.
    """

    position: int
    line: int
    indexed: int
    unchanged: int
    truncated: int
    failed: int
    errors: Sequence[LineError]
