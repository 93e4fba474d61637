"""The errors of `index`, all of them an `IndexingError`."""

from encoder.checkpoint import split_fingerprint

DOCTOR = "run longmatch doctor"


class IndexingError(Exception):
    """Base of every error that `index` raises on purpose."""


class DocumentError(IndexingError):
    """A field of a document is missing, empty, of the wrong type or over its limit."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class CorpusError(IndexingError):
    """The corpus as a whole cannot be read: no such path, unknown format."""


class StoreError(IndexingError):
    """The document store is damaged or was written in a format that is not understood."""


class FingerprintMismatchError(StoreError):
    """The data directory holds vectors of another checkpoint, or of another reading share."""

    def __init__(self, found: str, expected: str) -> None:
        (theirs, share), (ours, wanted) = split_fingerprint(found), split_fingerprint(expected)
        if theirs == ours:
            message = (
                f"the data directory was made with a reading share of {share:g}, not of "
                f"{wanted:g}: use that share, another data directory, or `longmatch reencode "
                "--reading-share`"
            )
        else:
            message = (
                f"the data directory was made with the encoder {found[:12]}, not with "
                f"{expected[:12]}: name that encoder with `--encoder` or none, another data "
                "directory, or move this one with `longmatch reencode DATA --encoder NEW`"
            )
        super().__init__(message)
        self.found = found
        self.expected = expected


class DataDirectoryInUseError(StoreError):
    """Another process has the data directory open for writing."""


class StorageError(StoreError):
    """The disk failed, or the system does not let a file be used; it may be sound."""

    problem = "the disk failed, or the file may not be used"

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: {self.problem}: {reason}")
        self.reason = reason


class StorageFullError(StorageError):
    """The disk is full."""

    problem = "the disk is full"


class DatabaseFailedError(StorageError):
    """The PostgreSQL that keeps the documents and the state cannot be reached, or failed."""

    problem = "the database failed"


class EngineError(StorageError):
    """The engine does not answer, refuses, or does not hold what the store needs."""

    problem = "the engine that searches cannot be used"


class DamagedDocumentError(StoreError):
    """A stored document, or what is stored about it, is damaged; the others are not affected.

    Attributes:
        document_id: of the document.
        part: what of it is damaged.
    """

    def __init__(self, path: object, document_id: str, part: str) -> None:
        super().__init__(f"{path}: document {document_id!r} is damaged in its {part}; {DOCTOR}")
        self.document_id = document_id
        self.part = part


class LexicalIndexNotReadyError(StoreError):
    """The words are still being counted, after the store was opened or their file was lost."""

    def __init__(self) -> None:
        super().__init__(
            "the lexical index is being made from the document store: repeat the request in a "
            "few seconds, or match in semantic or hybrid mode"
        )


class SnapshotError(IndexingError):
    """A published index generation is incomplete or changed."""


class RetrainingStoppedError(IndexingError):
    """Building an index generation was stopped, because the process ends; the old one stays."""


class ClusterError(IndexingError):
    """The Ray on which documents are encoded cannot be used, or an encoder on it fails.

    What was stored before stays, and the next run goes on from it.
    """


class BackupError(IndexingError):
    """A backup cannot be written, or one is incomplete, changed or of another checkpoint."""
