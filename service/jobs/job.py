"""A job: an upload, and how far its documents have been indexed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EndState = Literal["done", "cancelled", "failed"]
JobState = Literal["waiting", "running"] | EndState

MAX_LISTED_ERRORS = 100


@dataclass(frozen=True, slots=True)
class LineError:
    """A line that gave no document, and why.

    Attributes:
        line: counted from 1.
        pointer: JSON pointer into the line: "#/text"; "#" for all of it.
        detail: what is wrong, without the value.
    """

    line: int
    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A received file of lines, durable.

    Attributes:
        id: of the job that it becomes.
        size: bytes, decompressed.
        lines: those that are not blank.
        digest: SHA-256 of it.
    """

    id: str
    size: int
    lines: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class Job:
    """What is known of a job.

    Attributes:
        number: jobs run in this order.
        id: its name for clients.
        state: waiting, running, or how it ended.
        size: bytes of the upload, decompressed.
        digest: SHA-256 of the upload.
        accepted: lines that are not blank.
        position: bytes of the upload that are dealt with.
        line: lines that are dealt with, blank ones too.
        indexed: documents stored.
        unchanged: those of them whose text was stored already.
        truncated: those of them that were not read whole.
        failed: lines that gave no document.
        detail: why it failed, or what it waits for.
        created: ISO 8601 in UTC.
        ended: the same, when it has.
    """

    number: int
    id: str
    state: JobState
    size: int
    digest: bytes
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
        """Whether nothing more is done for it."""
        return self.state not in ("waiting", "running")

    @property
    def progress(self) -> float:
        """Share of the upload that is dealt with, in bytes."""
        return round(self.position / self.size, 4)


@dataclass(frozen=True, slots=True)
class Step:
    """What came of some lines of an upload.

    Attributes:
        position: bytes of the upload dealt with, now.
        line: lines dealt with, now.
        indexed: documents stored by this step.
        unchanged: as in `Job`, of this step.
        truncated: as in `Job`, of this step.
        errors: the lines of this step that gave no document.
    """

    position: int
    line: int
    indexed: int
    unchanged: int
    truncated: int
    errors: Sequence[LineError]
