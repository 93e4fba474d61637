"""Errors of `encoder`."""


class EncoderError(Exception):
    """Base of every error that `encoder` raises deliberately."""


class EmptyTextError(EncoderError):
    """The text has no token: it is empty, or white space, control characters and payload only."""

    def __init__(self, payload: int = 0) -> None:
        super().__init__(
            f"the text has no token to read: its {payload} characters are data, not text"
            if payload
            else "the text is empty: it has no token to read"
        )


class TruncatedTextError(EncoderError):
    """Strict reading was requested, and part of the text would be left out."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"the text has {tokens} tokens and only {limit} of them would be read")
        self.tokens = tokens
        self.limit = limit


class CheckpointError(EncoderError):
    """A checkpoint directory is incomplete, changed or of an unknown format."""


class ProviderError(EncoderError):
    """None of the requested execution providers is available."""


class EncoderServerError(EncoderError):
    """The server that encodes does not answer, or with something that is no vectors."""


class ParityError(EncoderError):
    """A graph differs from its reference by more than its tolerance."""


class QualityError(EncoderError):
    """A smaller precision loses more of the neighbours or the nDCG of fp32 than is allowed."""


class ArchiveError(EncoderError):
    """A block archive is damaged, does not fit what is written, or was made by another encoder."""
