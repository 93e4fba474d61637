"""What a search takes and returns: examples, options, hits, answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from index.engine.port import EncodedQuery, SearchStage
from index.lexical.scoring import TermWeight
from index.store.filters import Filter

Mode = Literal["semantic", "lexical", "hybrid"]
DEFAULT_MODE: Mode = "hybrid"  # the best on validation queries of three corpora


@dataclass(frozen=True, slots=True)
class Examples:
    """The input of a search by several examples: documents like these, unlike those.

    Attributes:
        like: at least one; what is found matches them.
        unlike: what is found matches none of them better.
    """

    like: tuple[EncodedQuery, ...]
    unlike: tuple[EncodedQuery, ...] = ()

    @property
    def all(self) -> tuple[EncodedQuery, ...]:
        """Return those that are liked, then the others."""
        return (*self.like, *self.unlike)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that a hit must meet to be returned; None for no limit."""

    min_score: float | None = None
    min_probability: float | None = None
    max_false_positive_rate: float | None = None


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class AlignmentOptions:
    """How many candidates are aligned with the query, and in how many seconds at most.

    Attributes:
        candidates: the best of them, at most.
        budget_seconds: after which nothing is aligned.
        margin: those are left out that would not be among the best with this many times the highest
            alignment score of the last ones, or of all in proportion to the score of the first
            stage. Infinity aligns all that could be.
    """

    candidates: int = 200
    budget_seconds: float = 0.1
    margin: float = 2.0


DEFAULT_ALIGNMENT = AlignmentOptions()
MAX_ALIGNED = 1_000  # candidates


@dataclass(frozen=True, slots=True)
class AlignmentReceipt:
    """What became of the second stage.

    Attributes:
        aligned: whether hits are ranked by it; False if time was up, or there was nothing to align.
        candidates: how many were to be aligned.
        scored: how many of them were; the others have no block vectors.
    """

    aligned: bool
    candidates: int
    scored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What to search for.

    Attributes:
        top_k: maximum number of hits.
        mode: what documents are found and ranked by.
        bounds: limits of scores and probabilities.
        where: a filter that the metadata of a hit must pass.
        exclude: ids of documents that are not returned.
        collapse: return only the best document of each family.
        alignment: of the best candidates in semantic and hybrid mode; None for none.
        explain: whether hits have terms, which of many hits take as long as the search.
    """

    top_k: int
    mode: Mode = DEFAULT_MODE
    bounds: Bounds = NO_BOUNDS
    where: Filter | None = None
    exclude: tuple[str, ...] = ()
    collapse: bool = False
    alignment: AlignmentOptions | None = DEFAULT_ALIGNMENT
    explain: bool = True

    @property
    def selects(self) -> bool:
        """Whether `where` or `exclude` leave documents out."""
        return self.where is not None or bool(self.exclude)


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that matches.

    Attributes:
        id: of the document.
        score: what hits are ranked by.
        title: of the document.
        metadata: of the document.
        semantic_score: weighted mean of the vector score and the alignment score, or of what the
            vector score lets expect of it, with the weight of the mode.
        vector_score: cosine of the two document vectors.
        alignment_score: of their sentence blocks, 0 to 1; None where they were not aligned.
        lexical_score: cosine of the words; None in semantic mode, which reads none.
        terms: that contribute most to the lexical score, each with its share of it.
        probability: that it is a match; None where the checkpoint has no calibration for it.
        false_positive_rate: share of random pairs of the corpus that score as high; None where
            the data directory has no calibration.
        relevant: whether the score rises above the level of chance; None where that is not known.
        first_stage_score: the score of the search, where a reranker has replaced `score`.
        family: the number of its family, where families were collapsed and it is in one.
        collapsed: ids of other documents of its family that are not returned, some of them.
        like_scores: in a search by several examples, the score of each that is liked; the other
            scores are then means of theirs.
        unlike_scores: in such a search, the score of each of the others.
    """

    id: str
    score: float
    title: str
    metadata: Mapping[str, Any]
    semantic_score: float
    vector_score: float
    alignment_score: float | None = None
    lexical_score: float | None = None
    terms: tuple[TermWeight, ...] = ()
    probability: float | None = None
    false_positive_rate: float | None = None
    relevant: bool | None = None
    first_stage_score: float | None = None
    family: int | None = None
    collapsed: tuple[str, ...] = ()
    like_scores: tuple[float, ...] = ()
    unlike_scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """The hits of one query.

    Attributes:
        hits: best first.
        scored_as: the mode whose scores these are: a hybrid search for a text without any indexed
            word has semantic scores.
        generation: of the index that was searched.
        sequence: of the store that the index held: every change up to it is in the answer; what
            was deleted later is left out.
        seconds: time of each stage.
        alignment: what became of the second stage; None if it was off.
        common_text: share of the words of the query that many documents share, and which therefore
            count for nothing; of several examples the mean.
    """

    hits: tuple[Hit, ...]
    scored_as: Mode
    generation: int
    sequence: int
    seconds: Mapping[SearchStage, float]
    alignment: AlignmentReceipt | None = None
    common_text: float = 0.0
