"""The searches for one query in a Qdrant server: one request finds candidates and scores them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from qdrant_client import models

from encoder.arrays import Float32, Int64
from index.engine.blocks import QueryBlocks
from index.engine.channels import WordChannel
from index.engine.port import VECTOR, Candidates
from index.engine.port import WORDS as WORD_CHANNEL
from index.engine.qdrant.filters import condition_of, condition_of_ids, has_ids, only
from index.engine.qdrant.generation import BLOCKS, DOCUMENT, WORDS, fold_query, sparse
from index.engine.query import EncodedQuery, Seconds, timed
from index.id_set import IdSet
from index.lexical.lexical_index import CANDIDATES
from index.lexical.scoring import TermWeight, candidate_terms
from index.store.filters import Filter

if TYPE_CHECKING:
    from index.engine.qdrant.engine import Generation, QdrantEngine

_TERMS = 8  # of a document that are explained
_READ = 30  # candidates that are aligned in both directions whatever they score in one
_NEAREST = 100  # candidates by their score in one direction that are aligned in both as well
_EXACTLY = models.SearchParams(
    exact=True, quantization=models.QuantizationSearchParams(ignore=True)
)
Scores = dict[int, float]


@dataclass(slots=True)
class QdrantSearch:
    """The searches for one query, and what was found for it.

    Attributes:
        engine: that is searched.
        query: what to search for.
        seconds: time of each stage.
        where: that all documents pass which are searched among.
        blocks: of the query.
        words: of the query.
        one_way: the alignment score of candidates from the side of the query, by vector id.
        aligned: how many candidates were aligned in both directions.
        unshared: no document has a word of the query.
    """

    engine: "QdrantEngine"
    query: EncodedQuery
    seconds: Seconds
    where: Filter | None
    blocks: QueryBlocks = field(init=False)
    words: WordChannel = field(init=False)
    one_way: Scores = field(default_factory=dict)
    aligned: int = 0
    unshared: bool = False

    def __post_init__(self) -> None:
        self.blocks = QueryBlocks(self.engine.store, self.query)
        self.words = WordChannel(self.engine.store, self.query)

    def search(self, channels: Sequence[str], k: int, among: IdSet | None) -> Candidates:
        """Find the best documents of each of these channels, with their scores in all of them."""
        size = max(k, CANDIDATES)
        with timed(self.seconds, "lexical"):
            silent = WORD_CHANNEL in channels and self.words.silent
        found_by = [name for name in channels if name == VECTOR or not silent]
        condition = None
        if among is not None:
            condition = None if self.where is None else condition_of(self.where)
            condition = condition or condition_of_ids(among)
        with timed(self.seconds, "search"):
            prefetch = [self._find(name, size, channels, condition) for name in found_by]
            # Aligning nothing projects the query, which the engine aligns from its side.
            aligns = channels != (WORD_CHANNEL,) and self.blocks.align([]) is not None
            found, at = self._scores(
                channels, size * len(prefetch), prefetch=prefetch, aligns=aligns
            )
        self.one_way |= found.pop(BLOCKS, {})
        if WORD_CHANNEL in channels and not any(found.get(WORD_CHANNEL, {}).values()):
            self.unshared = not self.words.terms.documents.any()
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

        The first candidates are aligned in both directions, as are later ones that are among the
        nearest from the side of the query. Others have the score of that side.
        """
        wanted = vector_ids.tolist()
        scores = np.array([self.one_way.get(n, np.nan) for n in wanted], dtype=np.float32)
        near = np.ones(len(wanted), dtype=np.bool_)
        if self.aligned >= _READ and len(self.one_way) > _NEAREST:
            near = ~(scores < sorted(self.one_way.values())[-_NEAREST])
        chosen = np.flatnonzero(near)
        exact = self.blocks.align(vector_ids[chosen].tolist())
        if exact is None:
            return None
        self.aligned += len(chosen)
        scores[chosen] = exact
        return scores

    def explain(self, vector_ids: Sequence[int]) -> Mapping[int, tuple[TermWeight, ...]]:
        """Return the words that add most to the score of each document."""
        with timed(self.seconds, "lexical"):
            return self.engine.store.words.explain(self.words.terms, vector_ids, _TERMS)

    def _find(
        self, name: str, size: int, channels: Sequence[str], condition: models.Condition | None
    ) -> models.Prefetch:
        """Return how a channel finds candidates: by the vector, or by the heaviest terms.

        With them do those that no document or a single one was known to have. Where words alone
        search a selection, all terms do: the heaviest may find too little of it.
        """
        chosen = only(condition)
        if name == VECTOR:
            vector = self.query.vector.tolist()
            return models.Prefetch(query=vector, using=DOCUMENT, limit=size, filter=chosen)
        terms = self.words.terms
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
        prefetch: Sequence[models.Prefetch] = (),
        only_ids: models.Condition | None = None,
        aligns: bool = False,
    ) -> tuple[dict[str, Scores], tuple[int, int]]:
        """Return the exact scores of documents by channel, and the generation and its position.

        Args:
            channels: besides the vector.
            limit: how many documents there are at most.
            prefetch: finds them.
            only_ids: where nothing finds them, says which they are.
            aligns: score the blocks as well.
        """
        queries: dict[str, tuple[str, Any]] = {VECTOR: (DOCUMENT, self.query.vector.tolist())}
        if WORD_CHANNEL in channels and not self.words.silent:
            terms = self.words.terms
            queries[WORD_CHANNEL] = (WORDS, sparse(terms.term_ids, terms.weights))
        blocks, engine = self.blocks.blocks if aligns else None, self.engine

        def ask(generation: "Generation") -> tuple[dict[str, Scores], tuple[int, int]]:
            at = generation.number, generation.manifest.position
            if not limit:
                return {VECTOR: {}}, at
            wanted = dict(queries)
            used = engine.store.alignment.space()
            if blocks is not None and used and used.space_id == generation.manifest.space:
                wanted[BLOCKS] = (BLOCKS, fold_query(blocks).tolist())
            requests = [
                models.QueryRequest(
                    prefetch=list(prefetch) or None,
                    query=query,
                    using=using,
                    filter=only(only_ids),
                    params=_EXACTLY,
                    limit=limit,
                )
                for using, query in wanted.values()
            ]
            answers = engine.client.query_batch_points(generation.name, requests)
            scores = [{int(p.id): p.score for p in answer.points} for answer in answers]
            return dict(zip(wanted, scores, strict=True)), at

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
        silent = WORD_CHANNEL in channels and (self.unshared or self.words.silent)
        silences = frozenset({WORD_CHANNEL} if silent else ())
        return Candidates(ids, scores, silences, {}, exhausted, *at).present()
