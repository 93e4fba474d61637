"""The engine in a Qdrant server: writes, generations, and what happens after a crash.

The store is the truth. A point is written on the condition that it holds no later state of its
document, and after a write what was deleted meanwhile is deleted again, so that a writer that was
paused brings nothing back. The point `MANIFEST` says which changes of the store a generation holds.
It is written last: after a crash they are applied again, by any server.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import numpy as np
from qdrant_client import QdrantClient, models

from encoder.alignment.space import AlignmentSpace
from encoder.arrays import Float32, Int64
from index.engine.port import EncodedQuery, Seconds
from index.engine.qdrant.filters import condition_of, number_fields
from index.engine.qdrant.generation import (
    MANIFEST,
    REVISION,
    GenerationMissingError,
    Manifest,
    create,
    naming_failures,
    points_of,
)
from index.engine.qdrant.search import QdrantSearch
from index.errors import EngineError
from index.lexical.hashed_words import HashedWords
from index.store.change_log import Changes
from index.store.document_store import DocumentStore
from index.store.filters import Filter

MAX_DRIFT = 0.2  # share of the documents that may change before words are weighed again
_OLDEST = (1, 16)  # writes on a condition
_SECONDS = 30  # that a request may take
_POINTS_A_REQUEST = 64
_POINTS_A_PAGE = 10_000
_INDEXED_FIELDS = 64  # of numbers; ranges of others are compared point by point
_log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Generation:
    """A collection that searches use, and what it was made with."""

    name: str
    manifest: Manifest
    space: AlignmentSpace | None

    def whiten(self, vector: Float32) -> Float32:
        """Return a document vector [dimension] as it is compared here."""
        return vector if self.space is None else self.space.whiten(vector[np.newaxis])[0]

    @property
    def number(self) -> int:
        """How many were made before it."""
        return _number(self.name)


class QdrantEngine:
    """A searchable copy of a store in a Qdrant server. Safe to use from many threads.

    Every call raises EngineError where the server does not answer or refuses; what has failed can
    be called again, and `catch_up` makes up for it.
    """

    exact = False

    def __init__(self, store: DocumentStore, client: QdrantClient, url: str) -> None:
        """Use a client of the server at `url`, which errors name; nothing is asked before use.

        The store is one that is `searched_elsewhere`.
        """
        self.store = store
        self.words = cast(HashedWords, store.words)
        self.client = client
        self.url = url
        self.failure: EngineError | None = None
        self.alias = f"longmatch-{store.log.identity}"
        self._lock = threading.Lock()  # held by one writer of this process
        self._building = threading.Lock()  # held by one rebuild; taken first
        self._generation: Generation | None = None
        self._indexed: dict[str, set[str]] = {}  # fields of numbers, by generation
        self._compared = False  # the number of points with that of documents
        self._followed = 0  # the position at the end of the last `catch_up`

    @property
    def position(self) -> int:
        """The sequence of the store that it holds, as far as this process knows."""
        return 0 if self._generation is None else self._generation.manifest.position

    @property
    def generation(self) -> int:
        """The number of the generation; 0 for none."""
        return 0 if self._generation is None else self._generation.number

    def apply(self, change: Changes) -> None:
        """Bring the engine to `change` or beyond; at return searches find what it added."""
        if change.sequence > self.position:
            with self._lock:
                self.on_generation(self._follow)

    def catch_up(self) -> None:
        """Bring the engine to the store; what has drifted too far is made again, not at once."""
        opening = not self._compared
        try:
            with self._lock:
                self.on_generation(self._follow if self._compared else self._compare)
        except GenerationMissingError:
            self.rebuild()
        if not opening and self._has_drifted():
            self.rebuild()
        self._forget_removals()

    def rebuild(self) -> None:
        """Make the next generation of the store, and switch to it; writes go on meanwhile.

        If another server makes it already, that is waited for instead.
        """
        with self._building:
            try:
                with naming_failures(self.url):
                    self._check_version()
                    before = self._served()
                    with self.store.connections.alone("generation") as going_on:
                        if self._served() == before:
                            self._make_generation(going_on)
                        else:
                            with self._lock:
                                self._follow(self._find())
            except EngineError as error:
                self.failure, self._generation = error, None
                raise
            self.failure, self._compared = None, True

    def filters(self, where: Filter) -> bool:
        """Return whether the filter is one of Qdrant."""
        return condition_of(where) is not None

    def open(
        self, query: EncodedQuery, seconds: Seconds, where: Filter | None = None
    ) -> QdrantSearch:
        """Begin the searches for a query."""
        return QdrantSearch(self, query, seconds, where)

    def on_generation(self, call: Callable[[Generation], T]) -> T:
        """Call with the present generation; once more if another server has switched meanwhile."""

        def attempt() -> T:
            with naming_failures(self.url):
                self._generation = self._generation or self._find()
                return call(self._generation)

        try:
            try:
                found = attempt()
            except GenerationMissingError:
                self._generation = None
                found = attempt()
        except EngineError as error:
            self.failure = error
            raise
        self.failure = None
        return found

    def _find(self) -> Generation:
        """Find the generation that the alias leads to, and check that it is one of this store."""
        self._check_version()
        name = self._served()
        if name is None:
            reason = "it has no generation of this data directory: run `longmatch index`"
            raise GenerationMissingError(self.url, reason)
        rows = self.client.retrieve(name, [MANIFEST])
        manifest = Manifest.read(rows[0].payload if rows else None, f"{self.url}: {name}")
        ours = self.store.fingerprint, self.store.dimension
        if (manifest.fingerprint, manifest.dimension) != ours:
            reason = (
                f"it holds {manifest.dimension} numbers a vector of the encoder "
                f"{manifest.fingerprint[:12]}, and the store {ours[1]} of {ours[0][:12]}"
            )
            raise EngineError(f"{self.url}: {name}", reason)
        if not self.words.use(manifest.terms):
            reason = f"{name} weighs words by frequencies that the store has no more"
            raise GenerationMissingError(self.url, reason)
        return Generation(name, manifest, self._space(manifest))

    def _space(self, manifest: Manifest) -> AlignmentSpace | None:
        """Return the space that a generation was made in.

        Raises:
            GenerationMissingError: the store has it no more.
        """
        found = self.store.alignment.kept(manifest.space)
        if found is None and manifest.space:
            raise GenerationMissingError(self.url, "it holds vectors in a space that is gone")
        return found

    def _served(self) -> str | None:
        """Return the collection that the alias leads to, if there is one."""
        aliases = self.client.get_aliases().aliases
        names = (found.collection_name for found in aliases if found.alias_name == self.alias)
        return next(names, None)

    def _check_version(self) -> None:
        version = self.client.info().version
        found = tuple(int(part) for part in version.split(".")[:2])
        if found < _OLDEST:
            reason = f"it is Qdrant {version}; {'.'.join(map(str, _OLDEST))} or later is needed"
            raise EngineError(self.url, reason)

    def _follow(self, generation: Generation) -> None:
        """Apply what the store has and the generation lacks."""
        if self.store.connections.shared:  # another server may have applied most of it
            generation = self._find()
        name, position = generation.name, generation.manifest.position
        changes, since = self.store.log.since(position), None
        if changes is not None:
            if changes.sequence == position:
                return
            self._write(generation, changes.changed, changes.sequence)
            self._delete(name, changes.removed)
            # This process may have been paused since it read the documents that it wrote.
            since = self.store.log.since(changes.sequence)
        if changes is None or since is None:  # they are forgotten
            self._reconcile(generation)
            return
        self._delete(name, np.intersect1d(since.removed, changes.changed))
        self._advance(generation, changes.sequence)

    def _compare(self, generation: Generation) -> None:
        """Apply what is lacking; after a crash of a writer there may be other points as well."""
        self._follow(generation)
        if self.client.count(generation.name).count != len(self.store) + 1:
            self._reconcile(generation)
        self._compared = True

    def _advance(self, generation: Generation, position: int) -> None:
        manifest = replace(generation.manifest, position=position)
        self._upsert(generation.name, [manifest.point()], position)
        self._generation = replace(generation, manifest=manifest)

    def _reconcile(self, generation: Generation) -> None:
        """Write what is missing or older than the store has it, and delete what it has not."""
        changes = self.store.log.since(0)
        assert changes is not None  # noqa: S101 (from 0 they are known)
        held = self._held(generation.name)
        revisions = zip(changes.changed, changes.revisions, strict=True)
        stale = [vector_id for vector_id, at in revisions if held.get(vector_id, -1) < at]
        gone = np.setdiff1d(np.array(list(held), dtype=np.int64), changes.changed)
        if stale or len(gone):
            _log.warning("the engine lacked %d documents, and had %d more", len(stale), len(gone))
        self._write(generation, stale, changes.sequence)
        self._delete(generation.name, gone)
        self._advance(generation, changes.sequence)

    def _held(self, name: str) -> dict[int, int]:
        """Return the revision of each point by vector id."""
        held: dict[int, int] = {}
        place: Any = MANIFEST + 1
        while place is not None:
            rows, place = self.client.scroll(
                name, offset=place, limit=_POINTS_A_PAGE, with_payload=[REVISION]
            )
            held |= {int(row.id): int((row.payload or {}).get(REVISION, -1)) for row in rows}
        return held

    def _write(
        self,
        generation: Generation,
        vector_ids: Sequence[int] | Int64,
        revision: int,
        going_on: Callable[[], None] = lambda: None,
    ) -> None:
        name = generation.name
        for some in _parts(vector_ids, _POINTS_A_REQUEST):
            going_on()
            points = points_of(
                self.store, some, revision, generation.manifest.terms, generation.space
            )
            fields = {field for point in points for field in number_fields(point.payload or {})}
            indexed = self._indexed.setdefault(name, set())
            for field in sorted(fields - indexed)[: _INDEXED_FIELDS - len(indexed)]:
                self.client.create_payload_index(name, field, models.PayloadSchemaType.FLOAT)
                indexed.add(field)
            self._upsert(name, points, revision)

    def _upsert(self, name: str, points: list[models.PointStruct], revision: int) -> None:
        """Write points, except over those that hold a later state of the store."""
        if points:
            earlier = models.FieldCondition(key=REVISION, range=models.Range(lte=revision))
            condition = models.Filter(must=[earlier])
            self.client.upsert(name, points, wait=True, update_filter=condition)

    def _delete(self, name: str, vector_ids: Sequence[int] | Int64) -> None:
        for some in _parts(vector_ids, _POINTS_A_PAGE):
            self.client.delete(name, models.PointIdsList(points=some.tolist()), wait=True)

    def _has_drifted(self) -> bool:
        """Return whether words are weighed, or blocks projected, otherwise than the store would."""
        generation = self._generation
        if generation is None:
            return True
        made = generation.manifest
        if made.space != self.store.alignment.space_number:
            return True
        changed = sum(self.store.log.count_since(made.made, made.documents))
        return changed > MAX_DRIFT * made.documents

    def _forget_removals(self) -> None:
        """Forget the removals up to where the round before this one was.

        A server that was paused for longer compares all revisions.
        """
        generation, before = self._generation, self._followed
        if generation is None:
            return
        positions = (follower.position for follower in self.store.followers)
        self._followed = min(generation.manifest.position, *positions)
        if before < self._followed:
            self.store.log.forget(before)

    def _make_generation(self, going_on: Callable[[], None]) -> None:
        """Load a new collection, switch the alias to it, and drop all earlier ones.

        What another server writes into an earlier one until it is dropped is in the store: it is
        applied at the end. Until then words are weighed by the earlier frequencies.

        Args:
            going_on: is called in between, and raises where another server has taken over.
        """
        found = self.client.get_collections().collections
        ours = [each.name for each in found if each.name.startswith(f"{self.alias}-")]
        name = f"{self.alias}-{max(map(_number, ours), default=0) + 1}"
        changes = self.store.log.since(0)  # first: what changes from now on is applied at the end
        assert changes is not None  # noqa: S101 (from 0 they are known)
        terms = self.words.measure(going_on)
        manifest = Manifest.of(self.store, changes.sequence, terms)
        generation = Generation(name, manifest, self._space(manifest))
        create(self.client, name, generation.manifest)
        self._write(generation, changes.changed, changes.sequence, going_on)
        self._upsert(name, [generation.manifest.point()], changes.sequence)
        going_on()
        with self._lock:
            self.client.update_collection_aliases(self._switch(name))
            self.words.use(terms)
            self._generation = generation
            for earlier in ours:
                self.client.delete_collection(earlier)
                self._indexed.pop(earlier, None)
            self._follow(generation)

    def _switch(self, name: str) -> list[models.CreateAliasOperation | models.DeleteAliasOperation]:
        created = models.CreateAlias(collection_name=name, alias_name=self.alias)
        deleted = models.DeleteAlias(alias_name=self.alias)
        before = [models.DeleteAliasOperation(delete_alias=deleted)] if self._served() else []
        return [*before, models.CreateAliasOperation(create_alias=created)]


def connect(store: DocumentStore, url: str) -> QdrantEngine:
    """Return the engine of a store in the server at a URL; nothing is asked of it yet.

    Args:
        store: what is searched.
        url: qdrant://HOST:6333, or http:// or https://, with the key that the server wants as the
            user; with ?grpc_port=6334 most requests use gRPC.
    """
    parts = urlsplit(url)
    scheme = {"qdrant": "http", "http": "http", "https": "https"}.get(parts.scheme)
    name, _, port = parts.query.partition("=")
    if scheme is None or not parts.hostname or (parts.query and name != "grpc_port"):
        raise ValueError(f"{url!r} is not like qdrant://HOST:6333, http:// or https://")
    client = QdrantClient(
        host=parts.hostname,
        port=parts.port or 6333,
        https=scheme == "https",
        prefix=parts.path.strip("/") or None,
        prefer_grpc=bool(port),
        grpc_port=int(port or 6334),
        api_key=parts.username,
        timeout=_SECONDS,
        check_compatibility=False,
    )
    return QdrantEngine(store, client, f"{parts.scheme}://{parts.hostname}:{parts.port or 6333}")


def _parts(vector_ids: Sequence[int] | Int64, size: int) -> Iterator[Int64]:
    vector_ids = np.asarray(vector_ids, dtype=np.int64)
    for start in range(0, len(vector_ids), size):
        yield vector_ids[start : start + size]


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
