"""The live index: the current snapshot and every change of the store since."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Int64
from index.errors import SnapshotError, StoreError
from index.id_set import IdSet
from index.store.ports import VectorSource
from index.store.records import Change
from index.vectors.backends import DEFAULT_PRECISION, EXACT, FAISS_BACKENDS, Backend
from index.vectors.drift import Drift, Training, measure_drift, needs_training
from index.vectors.generation import (
    DEFAULT_TARGET,
    Candidate,
    Generation,
    RetrainingResult,
    Stop,
    build_candidate,
    catch_up,
    drop_others,
    follow,
    load_generation,
    never,
    publish_generation,
)
from index.vectors.lists import nprobe_bounds
from index.vectors.snapshot import (
    CURRENT,
    Manifest,
    current_backend,
    oldest_sequence,
)
from index.vectors.vector_index import SearchResult

_log = logging.getLogger(__name__)


class LiveIndex:
    """A searchable copy of a document store. Safe to use from many threads.

    Changes may be applied in any order and from any thread: each of them brings the index up to
    the present state of the store, under one lock, so a late change has nothing left to do.
    Searches do not take that lock.
    """

    def __init__(
        self, store: VectorSource, root: Path, *, read_only: bool, backend: Backend
    ) -> None:
        """Start with an empty index; use `open_live_index`."""
        self._store = store
        self._root = root
        self._read_only = read_only
        self._updates = threading.Lock()  # held while the index changes or is replaced
        self._publishing = threading.Lock()  # held by one rebuild or publish; taken first
        self._backend = backend
        empty = EXACT.train(np.empty((0, store.dimension), dtype=np.float32), 1)
        self._live = Generation(empty, 0, Training(0, 0), 1, 0)

    @property
    def dimension(self) -> int:
        """Length of every vector."""
        return self._store.dimension

    @property
    def exact(self) -> bool:
        """Whether scores are those of the store's vectors; otherwise vectors are rounded."""
        return self._live.index.exact

    @property
    def nlist(self) -> int:
        """How many lists the vectors are kept in."""
        return self._live.index.nlist

    @property
    def nprobe(self) -> int:
        """How many lists a query visits by default."""
        return self._live.nprobe

    @property
    def sequence(self) -> int:
        """The store's sequence that the index holds."""
        return self._live.index.sequence

    @property
    def generation(self) -> int:
        """The snapshot last published or loaded; 0 for none."""
        return self._live.number

    @property
    def training(self) -> Training:
        """What the lists were trained for."""
        return self._live.training

    @property
    def problem(self) -> str | None:
        """What the engine that holds the vectors failed in last; None while it works."""
        return self._backend.problem()

    def check(self) -> None:
        """Ask the engine that holds the vectors whether it works.

        Raises:
            VectorEngineError: it does not.
        """
        self._backend.check()

    def list_sizes(self) -> Int64:
        """Return how many vectors each list keeps, Int64[nlist]."""
        return self._live.index.list_sizes()

    @property
    def outgrown(self) -> bool:
        """Whether the number of vectors calls for a `rebuild`."""
        index = self._live.index
        return needs_training(index.nlist, len(index), self._backend.choose_nlist)

    def __len__(self) -> int:
        return len(self._live.index)

    def search(
        self,
        vectors: Float32,
        k: int,
        *,
        nprobe: int | None = None,
        among: IdSet | None = None,
    ) -> SearchResult:
        """Find the k nearest vectors, of `among`, for each query Float32[Q, dimension].

        Waits for the addition of `ADD_CHUNK` vectors at most, never for a rebuild or a publish.

        Returns:
            The neighbours, with the generation and the sequence of the store that were searched:
            all that the store held at this sequence, and nothing that it did not hold. While more
            than `ADD_CHUNK` vectors are added at once, some of them may be found early.

        Raises:
            ValueError: a wrong shape, a query that is not finite, k or nprobe below 1.
        """
        live = self._live
        nprobe = live.nprobe if nprobe is None else nprobe
        found = live.index.search(vectors, k, nprobe=nprobe, among=among)
        return replace(found, generation=live.number)

    def scores(self, vector: Float32, ids: Int64) -> Float32:
        """Return the cosine of a vector Float32[dimension] with each of ids Int64[N].

        With their vectors as the index holds them.

        Returns:
            Float32[N]; NaN for ids that are not there.
        """
        scores: Float32 = self._live.index.vectors(ids) @ vector
        return scores

    def exact_scores(self, vector: Float32, k: int) -> tuple[Float32, int]:
        """Compare one query with all vectors of the index; see `VectorIndex.exact_scores`."""
        return self._live.index.exact_scores(vector, k)

    def set_nprobe(self, nprobe: int, *, generation: int) -> bool:
        """Change how many lists queries visit, within `nprobe_bounds`.

        Args:
            nprobe: how many.
            generation: that it was measured for; nothing changes where another one is live.

        Returns:
            Whether it was set.
        """
        with self._updates:
            least, most = nprobe_bounds(self.nlist)
            if self.generation != generation or not least <= nprobe <= most:
                return False
            self._live = replace(self._live, nprobe=nprobe)
            return True

    def measure_drift(self) -> Drift:
        """Measure how far the lists have drifted from the vectors they were trained for.

        Raises:
            StoreError: the store cannot be read.
        """
        live = self._live
        added, removed = self._store.log.count_since(live.training.sequence)
        return measure_drift(
            live.index.list_sizes(),
            live.training,
            added=added,
            removed=removed,
            choose=self._backend.choose_nlist,
        )

    def unpublished(self) -> int:
        """Count the vectors that a restart would have to add or remove after loading the snapshot.

        Raises:
            StoreError: the store cannot be read.
        """
        return sum(self._store.log.count_since(self._live.published))

    def apply(self, change: Change) -> None:
        """Bring the index to `change` or beyond; at return searches find what it added.

        Raises:
            StoreError: the store cannot be read; a later call makes up for it.
        """
        if change.sequence <= self.sequence:
            return
        with self._updates:
            followed = follow(self._live.index, change)
        if not followed:
            self.catch_up()

    def catch_up(self) -> None:
        """Bring the index to the present state of the store.

        Raises:
            StoreError: the store cannot be read; a later call makes up for it.
            VectorEngineError: the engine failed; a later call makes up for it.
        """
        if self._read_only and self._backend.keeps_changes:
            self._load_or_rebuild()  # the process that writes has changed the index, or does so
            return
        if self._read_only and self.sequence < self._store.log.start:
            self.rebuild()  # the writer has forgotten the changes since
            return
        with self._updates:
            catch_up(self._live.index, self._store, self.sequence)

    def rebuild(self) -> None:
        """Build a new index beside this one from the store's vectors, publish it, swap it in.

        Raises:
            StoreError: the store cannot be read; the old index stays.
            SnapshotError: the new index is in use, but could not be published.
        """
        with self._publishing, self._dropping_others():
            candidate = build_candidate(self._store, self._backend, DEFAULT_TARGET)
            manifest = None
            try:
                if not self._read_only:
                    manifest = self._publish_candidate(candidate)
            finally:
                self._swap_in(candidate, manifest)

    def retrain(self, target: float, stop: Stop = never) -> RetrainingResult:
        """Build a new generation beside this one, measure it, then publish it and swap it in.

        It is rejected when its recall@10 of held-out vectors is below the target and below that
        of the old one. Searches and changes go on meanwhile.

        Args:
            target: recall@10 to reach.
            stop: called often; true gives up.

        Raises:
            StoreError: the store cannot be read, or was opened for reading only.
            SnapshotError: the new generation could not be published; the old one stays.
            RetrainingStoppedError: `stop` returned true; the old one stays.
        """
        self._check_writable()
        with self._publishing, self._dropping_others():
            candidate = build_candidate(self._store, self._backend, target, stop)
            old = self._live
            old_recall = candidate.held_out.recall(old.index, old.nprobe)
            swapped = candidate.recall >= min(target, old_recall)
            if swapped:
                self._swap_in(candidate, self._publish_candidate(candidate))
        return RetrainingResult(
            swapped, candidate.recall, old_recall, candidate.index.nlist, candidate.nprobe
        )

    def publish(self) -> None:
        """Publish the index as a new snapshot; changes wait while it is written, searches do not.

        Removals that no snapshot on the disk has to replay are forgotten.

        Raises:
            StoreError: the data directory was opened for reading only, or the store cannot be
                written.
            SnapshotError: it could not be written; the old snapshot stays current.
        """
        self._check_writable()
        with self._publishing:
            live = self._live
            manifest = publish_generation(
                self._store, self._root, self._backend, live, self._updates
            )
            with self._updates:
                self._live = replace(
                    self._live, number=manifest.generation, published=manifest.sequence
                )
            self._store.log.forget(oldest_sequence(self._root), trained=live.training.sequence)

    def _load_or_rebuild(self) -> None:
        """Load the current snapshot, or build an index where that cannot be used.

        Raises:
            StoreError: the store cannot be read.
            VectorEngineError: the engine failed.
        """
        try:
            self.load_snapshot()
        except SnapshotError as error:
            # A process that reads may do without what another one has published for itself.
            expected = self._read_only and self._backend is EXACT
            published = (self._root / CURRENT).exists()
            _log.log(
                logging.WARNING if published and not expected else logging.INFO,
                "building the index from the document store: %s",
                error,
            )
            if self._read_only and self._backend.keeps_changes:
                self._backend = EXACT  # only the process that writes makes an index in the engine
            try:
                self.rebuild()
            except SnapshotError as unpublished:
                _log.warning("the index is complete in memory only: %s", unpublished)
        else:
            if not self._read_only:
                drop_others(self._backend, self._root, self._live.index)

    def load_snapshot(self) -> None:
        """Replace this index by the current snapshot and replay the changes of the store since.

        Raises:
            SnapshotError: the snapshot cannot be used; this index stays.
            StoreError: the store cannot be read.
        """
        loaded = load_generation(self._store, self._root, self._backend, read_only=self._read_only)
        with self._updates:
            self._live = loaded

    @contextmanager
    def _dropping_others(self) -> Iterator[None]:
        """Drop, after a block, the indexes that the engine keeps and that are not used by then."""
        try:
            yield
        finally:
            if not self._read_only:
                drop_others(self._backend, self._root, self._live.index)

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreError(f"{self._root}: opened for reading only")

    def _swap_in(self, candidate: Candidate, manifest: Manifest | None) -> None:
        """Make a candidate live under the generation that it was published as, if it was."""
        index, training, nprobe = candidate.index, candidate.training, candidate.nprobe
        catch_up(index, self._store, index.sequence)
        with self._updates:
            catch_up(index, self._store, index.sequence)
            generation, published = self._live.number, self._live.published
            if manifest is not None:
                generation, published = manifest.generation, manifest.sequence
            self._live = Generation(index, generation, training, nprobe, published)

    def _publish_candidate(self, candidate: Candidate) -> Manifest:
        # No other thread has it, so there is no change to wait for.
        return publish_generation(self._store, self._root, self._backend, candidate, nullcontext())


def open_live_index(
    store: VectorSource,
    root: Path,
    *,
    read_only: bool = False,
    backend: Backend | None = None,
) -> LiveIndex:
    """Open the index of a store: from the current snapshot in `root`, else from the store itself.

    A snapshot that is missing, damaged, too old or of another checkpoint, store, engine or
    precision is only logged; the index is then built from the store's vectors and, unless
    `read_only`, published. An outgrown one is used as it is: opening neither trains nor measures
    an index.

    Args:
        store: whose vectors.
        root: the directory of the snapshots.
        read_only: publish nothing.
        backend: what holds the vectors; None for what wrote the current snapshot, or FAISS in
            `DEFAULT_PRECISION` if there is none.

    Raises:
        StoreError: the store cannot be read.
        VectorEngineError: the engine failed.
    """
    backend = backend or current_backend(root) or FAISS_BACKENDS[DEFAULT_PRECISION]
    live = LiveIndex(store, root, read_only=read_only, backend=backend)
    live._load_or_rebuild()
    return live
