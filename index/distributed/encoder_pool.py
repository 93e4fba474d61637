"""The encoders of a cluster as a `index.build.BatchEncoder`.

Batches are sent in the order of the corpus and received in that order, so that the store becomes
the same, row by row, as when one process encodes. At most `BATCHES_AN_ACTOR` of them for each actor
are on their way: the corpus need not fit into memory. Nothing is stored by an actor, so one that is
killed loses nothing: Ray starts its process again, and the batches that it had are encoded once
more.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from index.build import Batch, BatchEncoder
from index.distributed.cluster import (
    PURPOSE,
    Allotment,
    ClusterOptions,
    connected,
    reason_of,
)
from index.distributed.encoding_actor import (
    EncodedBatch,
    EncoderOrder,
    EncodingActor,
    EncodingError,
    OpenedEncoder,
)
from index.errors import ClusterError
from index.progress import Progress
from index.store.records import EncodedDocument

BATCHES_AN_ACTOR = 3  # one that it encodes, and others while the first ones of all are stored
# A document on which a process ends, by its size perhaps, must not end it for hours.
ATTEMPTS = 3
RESTARTS = 20  # of the process of one encoder, in one run
START_SECONDS = 600.0  # that a machine may take to start a process and to load an encoder


@contextmanager
def open_encoder_pool(order: EncoderOrder, options: ClusterOptions) -> Iterator[BatchEncoder]:
    """Open encoders on a cluster, which end with the block.

    Args:
        order: which encoder each of them is; its `threads` are decided by the options.
        options: the cluster, and what each encoder gets.

    Raises:
        ClusterError: the cluster cannot be used, or an encoder cannot be opened or is another one.
    """
    with connected(options) as allotment:
        pool = _EncoderPool(order, allotment)
        pool.open()
        yield pool


class _EncoderPool:
    """Encoders in actors of Ray."""

    def __init__(self, order: EncoderOrder, allotment: Allotment) -> None:
        import ray

        self._ray = ray
        self._allotment = allotment
        actor = ray.remote(EncodingActor).options(
            num_cpus=allotment.cpus,
            num_gpus=allotment.gpus,
            max_restarts=RESTARTS,
            max_task_retries=ATTEMPTS - 1,
        )
        each = replace(order, threads=allotment.threads)
        self._actors = [actor.remote(each) for _ in range(allotment.actors)]

    def open(self) -> None:
        """Open all encoders, and check that they are the same.

        Raises:
            ClusterError: one cannot be opened, or differs.
        """
        opening = [actor.describe.remote() for actor in self._actors]
        deadline = time.monotonic() + START_SECONDS
        found: set[OpenedEncoder] = set()
        while opening:
            left = max(0.0, deadline - time.monotonic())
            done, opening = self._ray.wait(opening, timeout=left)
            if not done:
                raise ClusterError(
                    f"{PURPOSE}: {len(opening)} of {self._allotment} did not start within "
                    f"{START_SECONDS:g} seconds: the cluster has no room for them, or is slow"
                )
            found.add(self._get(partial(self._ray.get, done[0]), "opening an encoder"))
        strange = {opened.version for opened in found} - {version("longmatch")}
        if strange:
            raise ClusterError(
                f"{PURPOSE}: its machines have Longmatch {', '.join(sorted(strange))}, this has "
                f"{version('longmatch')}"
            )
        if len(found) > 1:
            raise ClusterError(
                f"{PURPOSE}: machines differ, and so would their vectors "
                f"({'; '.join(sorted(map(str, found)))})"
            )

    def __call__(
        self, batches: Iterable[Batch], progress: Progress
    ) -> Iterator[tuple[Batch, Sequence[EncodedDocument]]]:
        """Encode batches: see `BatchEncoder`."""
        from ray.util import ActorPool

        pool = ActorPool(self._actors * BATCHES_AN_ACTOR)
        sent = deque[Batch]()
        for batch in batches:
            if not batch.new:
                yield batch, []
                continue
            pool.submit(lambda actor, documents: actor.encode.remote(documents), list(batch.new))
            sent.append(batch)
            if not pool.has_free():
                yield self._receive(pool, sent.popleft(), progress)
        while sent:
            yield self._receive(pool, sent.popleft(), progress)

    def _receive(
        self, pool: Any, batch: Batch, progress: Progress
    ) -> tuple[Batch, Sequence[EncodedDocument]]:
        """Wait for the first batch of those that were sent."""
        work = f"documents {batch.new[0].id!r} to {batch.new[-1].id!r}"
        encoded: EncodedBatch = self._get(pool.get_next, work)
        for skipped in encoded.skipped:
            progress.skipped(skipped)
        progress.advanced(len(batch.new), tokens=encoded.tokens)
        return batch, encoded.documents

    def _get(self, read: Callable[[], Any], work: str) -> Any:
        """Return what a function reads from an actor.

        Raises:
            ClusterError: there is none; says of what work.
        """
        errors = self._ray.exceptions
        try:
            return read()
        except errors.RayTaskError as error:
            if isinstance(error.cause, EncodingError):
                raise ClusterError(f"{PURPOSE}: {error.cause}") from error
            raise ClusterError(f"{PURPOSE}: {work}: {error.cause!r}") from error
        except errors.ActorUnavailableError as error:
            raise ClusterError(
                f"{PURPOSE}: {work}: the process ended {ATTEMPTS} times, or its machine is lost: "
                f"{reason_of(error)}"
            ) from error
        except errors.RayError as error:
            raise ClusterError(f"{PURPOSE}: {work}: {reason_of(error)}") from error
