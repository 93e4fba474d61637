"""Errors of `encoder`.

* EncoderError
  * EmptyTextError        a text without a single token
  * TruncatedTextError    strict reading was requested, and the text is longer than the limit
  * CheckpointError       a checkpoint file is missing, changed or invalid
  * ProviderError         no usable ONNX Runtime execution provider
  * ParityError           an exported graph does not compute what the model computes
  * QualityError          an exported graph retrieves other documents than fp32
  * ArchiveError          a block archive is damaged, or another encoder made it
  * AdapterError          an adapter is damaged, or was fitted for another checkpoint
"""


class EncoderError(Exception):
    """Base of every error that `encoder` raises deliberately."""


class EmptyTextError(EncoderError):
    """The text has no token: it is empty, or white space and control characters only."""

    def __init__(self) -> None:
        super().__init__("the text is empty: it has no token to read")


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


class ParityError(EncoderError):
    """A graph differs from its reference by more than its tolerance."""


class QualityError(EncoderError):
    """A smaller precision loses more of the neighbours or the nDCG of fp32 than is allowed."""


class ArchiveError(EncoderError):
    """A block archive is damaged, does not fit what is written, or was made by another encoder."""


class AdapterError(EncoderError):
    """The adapter of a corpus is damaged, or was fitted for another checkpoint."""
