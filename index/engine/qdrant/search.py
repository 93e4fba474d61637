"""The searches for one query in a Qdrant server: one request finds candidates and scores them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from qdrant_client import models

from encoder.arrays import Float32, Int64, UInt32
from index.alignment.alignment_index import AlignableDocuments, SpaceInUse
from index.common_text.runs import CommonText
from index.engine.channels import QueryBlocks
from index.engine.port import VECTOR, Candidates, EncodedQuery, Seconds, timed
from index.engine.port import WORDS as WORD_CHANNEL
from index.engine.qdrant.filters import condition_of, condition_of_ids, has_ids, only
from index.engine.qdrant.generation import BLOCKS, COMMON, DOCUMENT, WORDS, blocks_of, sparse
from index.errors import EngineError
from index.id_set import IdSet
from index.lexical.hashed_words import HashedWords, explain, rows_of
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


@dataclass(slots=True)
class QdrantSearch:
    """The searches for one query, and what was found for it.

    Attributes:
        engine: that is searched.
        query: what to search for.
        seconds: time of each stage.
        where: a filter, of Qdrant, or one that all documents pass which are searched among.
        blocks: of the query.
        words: of the store.
        payloads: of points that were read, by vector id.
        spaces: the space that blocks are in, and the common text; None until they are read.
        unshared: no document has a word of the query.
    """

    engine: "QdrantEngine"
    query: EncodedQuery
    seconds: Seconds
    where: Filter | None
    blocks: QueryBlocks = field(init=False)
    words: HashedWords = field(init=False)
    payloads: dict[int, Payload] = field(default_factory=dict)
    spaces: tuple[SpaceInUse, CommonText] | None = None
    unshared: bool = False
    _terms: LexicalQuery | None = None

    def __post_init__(self) -> None:
        self.blocks = QueryBlocks(self.engine.store, self._read, self.query)
        self.words = cast(HashedWords, self.engine.store.words)

    @property
    def terms(self) -> LexicalQuery:
        """The terms of the query, of a stored document those that the engine holds; read once."""
        if self._terms is None:
            query = self.query
            if query.terms is not None:
                self._terms = query.terms
            elif query.vector_id == NO_VECTOR:
                self._terms = self.words.read(query.text, title=query.title)
            elif held := self._weights([query.vector_id]):
                self._terms = self.words.of_document(*held[query.vector_id])
            else:
                self._terms = self.words.read_stored(query.vector_id)
        return self._terms

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them."""
        size = max(k, CANDIDATES)
        with timed(self.seconds, "lexical"):
            silent = WORD_CHANNEL in channels and not len(self.terms)
        found_by = [name for name in channels if name == VECTOR or not silent]
        conditions = (
            None if self.where is None else condition_of(self.where),
            None if among is None else condition_of_ids(among),
        )
        present = [condition for condition in conditions if condition is not None]
        condition = models.Filter(must=present) if present else None
        with timed(self.seconds, "search"):

            def prefetch(vector: list[float]) -> list[models.Prefetch]:
                return [self._find(name, size, channels, condition, vector) for name in found_by]

            found, at = self._scores(channels, size * len(found_by), prefetch=prefetch)
        if WORD_CHANNEL in channels and not any(found.get(WORD_CHANNEL, {}).values()):
            self.unshared = not self.terms.documents.any()
        exhausted = len(found[VECTOR]) < size
        ids = np.array(sorted(found[VECTOR]), dtype=np.int64)
        ids = ids if among is None else ids[among.contains(ids)]
        return self._candidates(channels, ids, found, at, exhausted=exhausted)

    def score(self, channels: Sequence[str], vector_ids: Int64) -> Candidates:
        """Score documents Int64[N] in these channels; what the engine has not is left out."""
        ids = vector_ids.tolist()
        with timed(self.seconds, "search"):
            found, at = self._scores(channels, len(ids), only_ids=has_ids(ids))
        present = vector_ids[np.isin(vector_ids, list(found[VECTOR]))]
        return self._candidates(channels, present, found, at, exhausted=False)

    def align(self, vector_ids: Int64) -> Float32 | None:
        """Return alignment scores Float32[N], NaN without blocks; None if nothing can be aligned.

        That is so if there is no space, the query has no blocks, or the generation was switched to
        one of another space since the first ones.
        """
        return self.blocks.align(vector_ids.tolist())

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return the words that add most to the score of each document."""
        with timed(self.seconds, "lexical"):
            held = self._weights(vector_ids)
            documents = rows_of(list(held.values()))
            text = self.query.text, self.query.title
            return explain(self.terms, list(held), documents, _TERMS, text)

    def _weights(self, vector_ids: Sequence[int]) -> dict[int, tuple[UInt32, Float32]]:
        """Return the terms and weights of those of these documents that have some."""
        client = self.engine.client
        rows = self.engine.on_generation(
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
        documents = self._read([self.query.vector_id])
        return 0.0 if documents is None else documents.shares.get(self.query.vector_id, 0.0)

    def _read(self, vector_ids: Sequence[int]) -> AlignableDocuments | None:
        """Return the blocks of documents from their points, or None without a space.

        While a generation of the next space is made, they are projected from the store.
        """
        engine, store = self.engine, self.engine.store
        if self.spaces is None:
            used = store.alignment.space()
            if used is None:
                return None
            self.spaces = used, store.common_text.read()
        used, common = self.spaces
        missing = [n for n in vector_ids if n not in self.payloads]

        def ask(generation: "Generation") -> list[models.Record] | None:
            if generation.manifest.space != used.space_id:
                return None
            fields = [BLOCKS, COMMON]
            return engine.client.retrieve(generation.name, missing, with_payload=fields)

        rows = engine.on_generation(ask)
        if rows is None:
            return store.alignment.read(vector_ids)
        self.payloads |= {int(row.id): row.payload or {} for row in rows}
        try:
            blocks = {
                n: found
                for n in vector_ids
                if (found := blocks_of(self.payloads.get(n, {}), used.space.dimension)) is not None
            }
        except ValueError as error:
            raise EngineError(engine.url, str(error)) from error
        shares = {vector_id: self.payloads[vector_id][COMMON] for vector_id in blocks}
        return AlignableDocuments(used.space, blocks, common, shares)

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
        terms = self.terms
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
        if WORD_CHANNEL in channels and len(self.terms):
            # Not the nearest: these are looked for in the list of every term, and lists grow with
            # the collection. A recommendation reads the terms of each candidate from its point.
            liked: Any = [sparse(self.terms.term_ids, self.terms.weights)]
            by_terms = models.RecommendInput(positive=liked, strategy=_SUM)
            by_words[WORD_CHANNEL] = (WORDS, models.RecommendQuery(recommend=by_terms))
        engine = self.engine

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
        silent = WORD_CHANNEL in channels and (self.unshared or not len(self.terms))
        silences = frozenset({WORD_CHANNEL} if silent else ())
        return Candidates(ids, scores, silences, {}, exhausted, *at).present()
