"""Retrieval: the search, run in search processes or threads, and measured."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field

from pydantic import BaseModel, Field

from encoder.blocks import Receipt
from index.search.records import Examples, SearchAnswer, SearchOptions
from index.vectors.vector_index import NO_VECTOR
from service.compare.logic import Explanation
from service.encode import EncodedText, StoredQuery
from service.engine import Collection
from service.metrics import Stage
from service.searchers import Outcome, Task, perform
from service.telemetry import observe_stage
from service.threads import run_in

MAX_TOP_K = 1000  # matches of one query: their titles and metadata are held in memory
DEFAULT_TOP_K = 10


class RerankedBody(BaseModel, frozen=True):
    """What became of the second stage."""

    reranked: bool = Field(
        description="Whether the matches are in its order; false where time was up."
    )
    candidates: int = Field(description="How many were to be read.")
    rescored: int = Field(description="How many were read in time.")
    reranker: str = Field(description="Name of the checkpoint that read them.")
    # Version of the fusion and calibration of its scores; None if there is none.
    calibration: str | None = Field(exclude=True)


@dataclass(frozen=True, slots=True)
class Matches:
    """The answer to one query.

    Attributes:
        answer: the hits, and what they were found by.
        texts: the query; several examples, those that matches are like first.
        seconds: time of each stage.
        rerank: what the reranker read, if reranking was requested.
        explanations: why documents match, by document id, if that was requested.
    """

    answer: SearchAnswer
    texts: Sequence[EncodedText]
    seconds: Mapping[Stage, float]
    rerank: RerankedBody | None = None
    explanations: Mapping[str, Explanation] = field(default_factory=dict)

    @property
    def receipt(self) -> Receipt:
        """What was read of the query, of several examples together."""
        receipts = (astuple(text.receipt) for text in self.texts)
        return Receipt(*map(sum, zip(*receipts, strict=True)))


async def retrieve(
    collection: Collection, queries: Sequence[EncodedText | StoredQuery], options: SearchOptions
) -> list[Matches]:
    """Find the documents that match each query, best first.

    A stored document that was not read before is read where the search is done: to hand it from one
    thread to another would take as long as to read it. It is without block vectors then.
    """
    return [
        await _search(
            collection, Task(query, options), [query] if isinstance(query, EncodedText) else []
        )
        for query in queries
    ]


async def retrieve_by_examples(
    collection: Collection,
    like: Sequence[EncodedText],
    unlike: Sequence[EncodedText],
    options: SearchOptions,
) -> Matches:
    """Find the documents that match all of some texts, and none of others better, best first."""
    task = Task(Examples(tuple(like), tuple(unlike)), options)
    return await _search(collection, task, [*like, *unlike])


async def _search(collection: Collection, task: Task, texts: Sequence[EncodedText]) -> Matches:
    """Search for texts, or for a stored document that is read where the search is done."""
    outcome = await run_in(collection.engine.searchers, _perform, collection, task)
    texts = texts or outcome.stored
    monitor = collection.recall_monitor
    if monitor and len(texts) == 1 and not task.options.selects and task.options.mode != "lexical":
        monitor.offer(texts[0].vector, stored=texts[0].vector_id != NO_VECTOR)
    seconds: dict[Stage, float] = {}
    for stage, taken in (item for text in texts for item in text.seconds.items()):
        seconds[stage] = max(seconds.get(stage, 0.0), taken)
    seconds.update(outcome.answer.seconds.items())
    return Matches(outcome.answer, texts, seconds)


def _perform(collection: Collection, task: Task) -> Outcome:
    """Search in a process, or in this thread where there is none that can; count the stages."""
    outcome = collection.engine.search_processes.search(collection, task)
    if outcome is None:
        outcome = perform(collection.data, task, collection.scoring.present)
    for stage, duration in outcome.answer.seconds.items():
        observe_stage(collection.engine.metrics, stage, duration)
    return outcome
