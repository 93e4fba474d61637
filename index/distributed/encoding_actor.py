"""What runs on the machines of a cluster: an actor that holds one encoder.

`index.distributed.encoder_pool` makes an actor of the class.
"""

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TypeVar

from encoder.checkpoint import with_reading_share
from encoder.encoder import Encoder
from encoder.errors import CheckpointError, EncoderError
from encoder.opening import find_encoder, open_encoder
from index.build import encode_documents
from index.document import Document, SkippedInput
from index.store.records import EncodedDocument

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EncoderOrder:
    """Which encoder an actor is to open.

    Attributes:
        encoder: its name: of a folder, the same on every machine.
        fingerprint: that its document vectors must have.
        reading_share: of the sentence blocks, that are encoded.
        precision: of the graphs; None for the best one of the device.
        providers: execution providers in the order of preference; None for the default.
        threads: of each encoder.
    """

    encoder: str
    fingerprint: str
    reading_share: float
    precision: str | None
    providers: tuple[str, ...] | None
    threads: int


@dataclass(frozen=True, slots=True)
class OpenedEncoder:
    """What an actor has opened, which must be the same in all of them.

    Attributes:
        version: of Longmatch.
        precision: of the graphs.
        provider: the execution provider.
    """

    version: str
    precision: str
    provider: str

    def __str__(self) -> str:
        return f"Longmatch {self.version}, {self.precision} by {self.provider}"


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """Documents as an actor has encoded them, and those that have no token."""

    documents: Sequence[EncodedDocument]
    skipped: Sequence[SkippedInput]
    tokens: int


class EncodingError(Exception):
    """An encoder cannot be opened or used; the message names the machine."""


class EncodingActor:
    """Holds one encoder, opened at the first call: also when its process was started again.

    Args:
        order: which encoder to open.
    """

    def __init__(self, order: EncoderOrder) -> None:
        self._order = order

    def describe(self) -> OpenedEncoder:
        """Open the encoder.

        Raises:
            EncodingError: it cannot be opened.
        """
        encoder = _named(lambda: self._opened)
        return OpenedEncoder(version("longmatch"), encoder.precision, encoder.provider)

    def encode(self, documents: Sequence[Document]) -> EncodedBatch:
        """Encode the documents of a batch with all threads.

        Raises:
            EncodingError: the encoder fails.
        """
        counts = _Counts()
        encoded = _named(lambda: encode_documents(documents, self._opened, counts))
        return EncodedBatch(encoded, counts.left_out, counts.tokens)

    @cached_property
    def _opened(self) -> Encoder:
        order = self._order
        checkpoint = with_reading_share(find_encoder(order.encoder), order.reading_share)
        encoder = open_encoder(
            checkpoint,
            precision=order.precision,
            providers=order.providers,
            threads=order.threads,
        )
        if encoder.fingerprint != order.fingerprint:
            raise CheckpointError(f"{order.encoder}: is another encoder than the requested one")
        encoder.warm_up()
        return encoder


class _Counts:
    """Collects what a job reports, to be reported where the job is."""

    def __init__(self) -> None:
        self.left_out: list[SkippedInput] = []
        self.tokens = 0

    def skipped(self, skipped: SkippedInput) -> None:
        self.left_out.append(skipped)

    def started(self, step: str, total: int | None, *, unit: str = "documents") -> None:
        """Ignore it."""

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        self.tokens += tokens


def _named(work: Callable[[], T]) -> T:
    """Name the machine in the error of a piece of work."""
    try:
        return work()
    except (EncoderError, OSError, ImportError) as error:
        raise EncodingError(f"an encoder on {socket.gethostname()}: {error}") from error
