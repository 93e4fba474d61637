"""Documents encoded by actors of Ray that hold an encoder each, as a `index.build.BatchEncoder`.

Batches are sent in the order of the corpus and received in that order, so that the store becomes
the same, row by row, as when one process encodes. At most `BATCHES_AN_ACTOR` of them for each actor
are on their way: the corpus need not fit into memory. Nothing is stored by an actor, so one that is
killed loses nothing: Ray starts its process again, and the batches that it had are encoded once
more.
"""

import socket
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

from encoder.checkpoint import with_reading_share
from encoder.encoder import Encoder
from encoder.errors import CheckpointError, EncoderError
from encoder.opening import find_encoder, open_encoder
from index.build import Batch, BatchEncoder, encode_documents
from index.distributed.cluster import PURPOSE, ClusterOptions, connected, reason_of
from index.document import Document, SkippedInput
from index.errors import ClusterError
from index.progress import Progress, SilentProgress
from index.store.records import EncodedDocument

BATCHES_AN_ACTOR = 3  # one that it encodes, and others while the first ones of all are stored
# A document on which a process ends, by its size perhaps, must not end it for hours.
ATTEMPTS = 3
RESTARTS = 20  # of the process of one encoder, in one run
START_SECONDS = 600.0  # that a machine may take to start a process and to load an encoder


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
        version: of Longmatch.
    """

    encoder: str
    fingerprint: str
    reading_share: float
    precision: str | None
    providers: tuple[str, ...] | None
    threads: int = 1
    version: str = field(default_factory=lambda: version("longmatch"))


@dataclass(slots=True)
class EncodedBatch(SilentProgress):
    """Documents as an actor has encoded them, and what it reports: those that have no token."""

    documents: list[EncodedDocument] = field(default_factory=list)
    left_out: list[SkippedInput] = field(default_factory=list)
    tokens: int = 0

    def skipped(self, skipped: SkippedInput) -> None:
        """Note a document that is left out."""
        self.left_out.append(skipped)

    def advanced(self, count: int, *, tokens: int = 0) -> None:
        """Count tokens."""
        self.tokens += tokens


class EncodingActor:
    """Holds one encoder, opened at the first call: also when its process was started again.

    Every call raises ClusterError with the machine if the encoder cannot be opened or used.
    """

    def __init__(self, order: EncoderOrder) -> None:
        self._order = order

    def describe(self) -> str:
        """Open the encoder; return what must be the same of all of them, or vectors differ."""
        with _naming_machine():
            return f"{self._encoder.precision} by {self._encoder.provider}"

    def encode(self, documents: Sequence[Document]) -> EncodedBatch:
        """Encode the documents of a batch with all threads."""
        encoded = EncodedBatch()
        with _naming_machine():
            encoded.documents = encode_documents(documents, self._encoder, encoded)
        return encoded

    @cached_property
    def _encoder(self) -> Encoder:
        order = self._order
        if order.version != (here := version("longmatch")):
            raise CheckpointError(f"has Longmatch {here}, not {order.version}")
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


@contextmanager
def _naming_machine() -> Iterator[None]:
    try:
        yield
    except (EncoderError, OSError, ImportError) as error:
        machine = socket.gethostname()
        raise ClusterError(f"{PURPOSE}: an encoder on {machine}: {error}") from error


@contextmanager
def open_encoders(order: EncoderOrder, options: ClusterOptions) -> Iterator[BatchEncoder]:
    """Open encoders on a cluster, which end with the block.

    Args:
        order: which encoder each of them is; its `threads` are decided by the options.
        options: the cluster, and what each encoder gets.

    Raises:
        ClusterError: the cluster cannot be used, or an encoder cannot be opened or is another one.
    """
    with connected(options) as allotment:
        import ray

        actor = ray.remote(EncodingActor).options(
            num_cpus=allotment.threads,
            num_gpus=allotment.gpus,
            max_restarts=RESTARTS,
            max_task_retries=ATTEMPTS - 1,
        )
        each = replace(order, threads=allotment.threads)
        actors = [actor.remote(each) for _ in range(allotment.actors)]
        with _reported("opening an encoder"):
            opening = [actor.describe.remote() for actor in actors]
            found = set(ray.get(opening, timeout=START_SECONDS))
        if len(found) > 1:
            differing = "; ".join(sorted(found))
            raise ClusterError(f"{PURPOSE}: machines differ, as would their vectors ({differing})")
        yield partial(_encode, actors)


def _encode(
    actors: Sequence[Any], batches: Iterable[Batch], progress: Progress
) -> Iterator[tuple[Batch, list[EncodedDocument]]]:
    """Encode batches: see `BatchEncoder`."""
    from ray.util import ActorPool

    pool = ActorPool([*actors] * BATCHES_AN_ACTOR)
    sent = deque[Batch]()
    for batch in batches:
        if not batch.new:
            yield batch, []
            continue
        pool.submit(lambda actor, documents: actor.encode.remote(documents), list(batch.new))
        sent.append(batch)
        if not pool.has_free():
            yield _receive(pool, sent.popleft(), progress)
    while sent:
        yield _receive(pool, sent.popleft(), progress)


def _receive(pool: Any, batch: Batch, progress: Progress) -> tuple[Batch, list[EncodedDocument]]:
    """Wait for the first batch of those that were sent."""
    with _reported(f"documents {batch.new[0].id!r} to {batch.new[-1].id!r}"):
        encoded: EncodedBatch = pool.get_next()
    for skipped in encoded.left_out:
        progress.skipped(skipped)
    progress.advanced(len(batch.new), tokens=encoded.tokens)
    return batch, encoded.documents


@contextmanager
def _reported(work: str) -> Iterator[None]:
    """Let errors of actors, and those of Ray, say at what work they occurred."""
    from ray.exceptions import RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        if isinstance(error.cause, ClusterError):
            raise ClusterError(str(error.cause)) from error
        raise ClusterError(f"{PURPOSE}: {work}: {error.cause!r}") from error
    except RayError as error:
        raise ClusterError(f"{PURPOSE}: {work}: {reason_of(error)}") from error
