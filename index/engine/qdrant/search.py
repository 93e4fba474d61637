"""The searches for one query in a Qdrant server: one request finds candidates and scores them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from qdrant_client import models

from encoder.arrays import Float32, Int64, UInt32
from index.alignment.alignment_index import AlignableDocuments
from index.engine.channels import BlockAlignment, read_terms
from index.engine.port import VECTOR, Candidates, EncodedQuery, Seconds, timed
from index.engine.port import WORDS as WORD_CHANNEL
from index.engine.qdrant.filters import condition_of, condition_of_ids, has_ids, only
from index.engine.qdrant.generation import BLOCKS, COMMON, DOCUMENT, WORDS, blocks_of, sparse
from index.errors import EngineError
from index.id_set import IdSet
from index.lexical.hashed_words import explain, rows_of
from index.lexical.lexical_index import CANDIDATES
from index.lexical.scoring import LexicalQuery, TermWeight, candidate_terms
from index.store.filters import Filter
from index.vectors.vector_index import NO_VECTOR

if TYPE_CHECKING:
    from index.engine.qdrant.engine import Generation, QdrantEngine

_TERMS = 8  # of a document that are explained
_EXACTLY = models.SearchParams(
    exact=True, quantization=models.QuantizationSearchParams(ignore=True)
)
_SUM = models.RecommendStrategy.SUM_SCORES
Scores = dict[int, float]
Payload = dict[str, Any]


class QdrantSearch(BlockAlignment):
    """The searches for one query, and what was found for it."""

    def __init__(
        self, engine: "QdrantEngine", query: EncodedQuery, seconds: Seconds, where: Filter | None
    ) -> None:
        """Search an engine.

        Args:
            engine: that is searched.
            query: what to search for.
            seconds: the time of each stage is added.
            where: a filter, of Qdrant, or one that all documents pass which are searched among.
        """
        super().__init__(engine.store, query)
        self._engine, self._seconds, self._where = engine, seconds, where
        self._payloads: dict[int, Payload] = {}  # of points that were read, by vector id
        self._unshared = False  # no document has a word of the query

    @cached_property
    def _terms(self) -> LexicalQuery:
        """The terms of the query, of a stored document those that the engine holds."""
        query, words = self.query, self._engine.words
        if query.terms is None and query.vector_id != NO_VECTOR:
            held = self._weights([query.vector_id])
            if held:
                return words.of_document(*held[query.vector_id])
        return read_terms(words, query)

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them."""
        size = max(k, CANDIDATES)
        with timed(self._seconds, "lexical"):
            silent = WORD_CHANNEL in channels and not len(self._terms)
        found_by = [name for name in channels if name == VECTOR or not silent]
        conditions = (
            None if self._where is None else condition_of(self._where),
            None if among is None else condition_of_ids(among),
        )
        present = [condition for condition in conditions if condition is not None]
        condition = models.Filter(must=present) if present else None
        with timed(self._seconds, "search"):

            def prefetch(vector: list[float]) -> list[models.Prefetch]:
                return [self._find(name, size, channels, condition, vector) for name in found_by]

            found, at = self._scores(channels, size * len(found_by), prefetch=prefetch)
        if WORD_CHANNEL in channels and not any(found.get(WORD_CHANNEL, {}).values()):
            self._unshared = not self._terms.documents.any()
        exhausted = len(found[VECTOR]) < size
        ids = np.array(sorted(found[VECTOR]), dtype=np.int64)
        ids = ids if among is None else ids[among.contains(ids)]
        return self._candidates(channels, ids, found, at, exhausted=exhausted)

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Score documents Int64[N] in these channels; what the engine has not is left out."""
        ids = vector_ids.tolist()
        with timed(self._seconds, "search"):
            found, at = self._scores(channels, len(ids), only_ids=has_ids(ids))
        present = vector_ids[np.isin(vector_ids, list(found[VECTOR]))]
        return self._candidates(channels, present, found, at, exhausted=False)

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return the words that add most to the score of each document."""
        with timed(self._seconds, "lexical"):
            held = self._weights(vector_ids)
            documents = rows_of(list(held.values()))
            text = self.query.text, self.query.title
            return explain(self._terms, list(held), documents, _TERMS, text)

    def _weights(self, vector_ids: Sequence[int]) -> dict[int, tuple[UInt32, Float32]]:
        """Return the terms and weights of those of these documents that have some."""
        client = self._engine.client
        rows = self._engine.on_generation(
            lambda made: client.retrieve(
                made.name, list(vector_ids), with_payload=False, with_vectors=[WORDS]
            )
        )
        found = {int(row.id): cast(Any, row.vector)[WORDS] for row in rows if row.vector}
        return {
            vector_id: (np.array(held.indices, np.uint32), np.array(held.values, np.float32))
            for vector_id, held in found.items()
        }

    def common_share(self) -> float:
        """Return what share of the words of the stored query is common text."""
        documents = self.read_blocks([self.query.vector_id])
        return 0.0 if documents is None else documents.shares.get(self.query.vector_id, 0.0)

    def read_blocks(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of documents from their points, or None without a space.

        While a generation of the next space is made, they are projected from the store.
        """
        engine, store = self._engine, self.store
        used = self._used = self._used or store.alignment.space()
        if used is None:
            return None
        missing = [n for n in vector_ids if n not in self._payloads]

        def ask(generation: "Generation") -> list[models.Record] | None:
            if generation.manifest.space != used.space_id:
                return None
            fields = [BLOCKS, COMMON]
            return engine.client.retrieve(generation.name, missing, with_payload=fields)

        rows = engine.on_generation(ask)
        if rows is None:
            return store.alignment.read(vector_ids)
        self._payloads |= {int(row.id): row.payload or {} for row in rows}
        try:
            blocks = {
                n: found
                for n in vector_ids
                if (found := blocks_of(self._payloads.get(n, {}), used.space.dimension)) is not None
            }
        except ValueError as error:
            raise EngineError(engine.url, str(error)) from error
        shares = {vector_id: self._payloads[vector_id][COMMON] for vector_id in blocks}
        return AlignableDocuments(used, blocks, shares)

    def _find(
        self,
        name: str,
        size: int,
        channels: Sequence[str],
        condition: models.Condition | None,
        vector: list[float],
    ) -> models.Prefetch:
        """Return how a channel finds candidates: by the vector, or by the heaviest terms.

        With them do those that no document or a single one was known to have. Where words alone
        search a selection, all terms do: the heaviest may find too little of it.
        """
        chosen = only(condition)
        if name == VECTOR:
            return models.Prefetch(query=vector, using=DOCUMENT, limit=size, filter=chosen)
        terms = self._terms
        every = condition is not None and len(channels) == 1
        rare = np.flatnonzero(terms.documents <= 1)
        rows = np.arange(len(terms))
        rows = rows if every else np.union1d(candidate_terms(terms), rare).astype(np.int64)
        query = sparse(terms.term_ids[rows], terms.weights[rows])
        return models.Prefetch(query=query, using=WORDS, limit=size, filter=chosen)

    def _scores(
        self,
        channels: Sequence[str],
        limit: int,
        *,
        prefetch: Callable[[list[float]], list[models.Prefetch]] = lambda _: [],
        only_ids: models.Condition | None = None,
    ) -> tuple[dict[str, Scores], tuple[int, int]]:
        """Return the exact scores of documents by channel, and the generation and its position.

        Args:
            channels: besides the vector.
            limit: how many documents there are at most.
            prefetch: finds them by the vector of the query, as it is compared.
            only_ids: where nothing finds them, says which they are.
        """
        by_words: dict[str, tuple[str, Any]] = {}
        if WORD_CHANNEL in channels and len(self._terms):
            # Not the nearest: these are looked for in the list of every term, and lists grow with
            # the collection. A recommendation reads the terms of each candidate from its point.
            liked: Any = [sparse(self._terms.term_ids, self._terms.weights)]
            by_terms = models.RecommendInput(positive=liked, strategy=_SUM)
            by_words[WORD_CHANNEL] = (WORDS, models.RecommendQuery(recommend=by_terms))
        engine = self._engine

        def ask(generation: "Generation") -> tuple[dict[str, Scores], tuple[int, int]]:
            at = generation.number, generation.manifest.position
            if not limit:
                return {VECTOR: {}}, at
            vector = generation.whiten(self.query.vector).tolist()
            queries = {VECTOR: (DOCUMENT, vector), **by_words}
            found_by = prefetch(vector)
            requests = [
                models.QueryRequest(
                    prefetch=found_by or None,
                    query=query,
                    using=using,
                    filter=only(only_ids),
                    params=_EXACTLY,
                    limit=limit,
                )
                for using, query in queries.values()
            ]
            answers = engine.client.query_batch_points(generation.name, requests)
            scores = [{int(p.id): p.score for p in answer.points} for answer in answers]
            return dict(zip(queries, scores, strict=True)), at

        return engine.on_generation(ask)

    def _candidates(
        self,
        channels: Sequence[str],
        ids: Int64,
        found: Mapping[str, Scores],
        at: tuple[int, int],
        *,
        exhausted: bool,
    ) -> Candidates:
        scores = {
            name: np.array([found.get(name, {}).get(n, 0.0) for n in ids.tolist()], np.float32)
            for name in dict.fromkeys((VECTOR, *channels))
        }
        silent = WORD_CHANNEL in channels and (self._unshared or not len(self._terms))
        silences = frozenset({WORD_CHANNEL} if silent else ())
        return Candidates(ids, scores, silences, {}, exhausted, *at).present()
