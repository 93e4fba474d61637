"""Do several examples find more than one, and does an unliked one help?

    python -m benchmarks.quality.examples --data DATA --mode lexical

Of every judged query with enough matches, three matches are the examples, and the others are what
has to be found: by the first example alone, by the plain mean of the scores, and by the mean of
roots of `index.search.rankers`. Then the first two documents that are found and not judged a match
are unliked. What is judged to match these, and not the query, is unwanted: its number in the first
ten should fall, and nDCG should not. Judgements are incomplete: much that is unliked does match.
"""

import math
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, markdown_table, write_record
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from benchmarks.quality.stored_corpus import stored_corpus, stored_documents, stored_words
from encoder.arrays import Float32
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.judgements import read_qrels
from evaluation.metrics import ndcg_at_10
from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion, read_fusion
from index.search.rankers import combine_scores
from index.search.records import (
    DEFAULT_ALIGNMENT,
    DEFAULT_MODE,
    Examples,
    Hit,
    Mode,
    SearchOptions,
)
from index.search.search import search

LIKED, UNLIKED = 3, 2
MOST_QUERIES = 300
DEPTH = 200
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0)
Combine = Callable[[Float32, Sequence[Float32]], Float32]


def _weighted(weight: float) -> Combine:
    return lambda like, unlike: combine_scores(like, unlike, weight)


LIKE: dict[str, Combine] = {
    "one example": lambda like, _: like[0],
    "highest score": lambda like, _: like.max(axis=0),
    "mean of scores": lambda like, _: like.mean(axis=0),
    "mean of roots": combine_scores,
}
UNLIKE = {f"unliked, weight {weight}": _weighted(weight) for weight in WEIGHTS}


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    mode: Annotated[Mode, typer.Option(help="Of the search; lexical encodes nothing.")] = (
        DEFAULT_MODE
    ),
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
) -> None:
    """Measure searches by examples on every corpus that has judgements."""
    source, encoder = commit(), OnnxEncoder(load_checkpoint(DEFAULT_CHECKPOINT))
    fusion, results = read_fusion(encoder.checkpoint), {}
    for part in find_corpora(data, "valid"):
        with tempfile.TemporaryDirectory() as folder:
            stored: AbstractContextManager[DataDirectory]
            if mode == "lexical":
                stored = stored_words(part, Path(folder))
            else:
                stored = stored_corpus(part, encoder, blocks / part.folder.name, Path(folder))
            with stored as directory:
                results[part.folder.name] = measure(directory, part, mode, fusion)
    settings = {"mode": mode, "liked": LIKED, "unliked": UNLIKED}
    record = make_record(f"examples-{mode}", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    data: DataDirectory, part: CorpusPart, mode: Mode, fusion: LinearFusion
) -> dict[str, Any]:
    """Return nDCG@10 of each way on one corpus."""
    ndcg: dict[str, list[float]] = {way: [] for way in (*LIKE, *UNLIKE)}
    unwanted: dict[str, list[float]] = {way: [] for way in UNLIKE}
    qrels = read_qrels(part.folder / "qrels.tsv")
    for query, like, wanted in _cases(qrels):
        hits = _search(data, like, [], mode, fusion)
        for way, combine in LIKE.items():
            ndcg[way].append(_ndcg(_ranked(hits, combine), wanted))
        unlike = [one.id for one in hits[:10] if one.id not in {query, *wanted}][:UNLIKED]
        others = {name for one in unlike for name in qrels.get(one, {})} - {query, *qrels[query]}
        hits = _search(data, like, unlike, mode, fusion)
        for way, combine in UNLIKE.items():
            ranked = _ranked(hits, combine)
            ndcg[way].append(_ndcg(ranked, wanted))
            if others:
                unwanted[way].append(len(others & set(list(ranked)[:10])) / 10)
    return {
        way: {
            "queries": len(one),
            "ndcg": float(np.mean(one)),
            "unwanted": float(np.mean(unwanted[way])) if unwanted.get(way) else None,
        }
        for way, one in ndcg.items()
    }


def _cases(
    qrels: Mapping[str, Mapping[str, int]],
) -> Iterator[tuple[str, list[str], dict[str, int]]]:
    """Return queries that have enough matches, the examples, and what is to be found."""
    rng = random.Random(0)
    queries = [name for name, own in sorted(qrels.items()) if len(own) >= 2 * LIKED]
    for query in rng.sample(queries, min(MOST_QUERIES, len(queries))):
        own = sorted(qrels[query])
        rng.shuffle(own)
        yield query, own[:LIKED], dict.fromkeys(own[LIKED:], 1)


def _search(
    data: DataDirectory,
    like: Sequence[str],
    unlike: Sequence[str],
    mode: Mode,
    fusion: LinearFusion,
) -> tuple[Hit, ...]:
    queries = stored_documents(data, [*like, *unlike])
    examples = Examples(tuple(queries[one] for one in like), tuple(queries[one] for one in unlike))
    alignment = replace(DEFAULT_ALIGNMENT, budget_seconds=math.inf)
    options = SearchOptions(top_k=DEPTH, mode=mode, alignment=alignment)
    nothing = ScoreCalibrator(None, None, None)
    return search(data, examples, options, fusion=fusion, calibrator=nothing, among=None).hits


def _ranked(hits: Sequence[Hit], combine: Combine) -> dict[str, float]:
    """Return the scores of hits by their ids, best first."""
    like = np.array([one.like_scores for one in hits], dtype=np.float32).T
    unlike = np.array([one.unlike_scores for one in hits], dtype=np.float32).T
    scores = combine(like, list(unlike)).tolist()
    best = sorted(zip(scores, (hit.id for hit in hits), strict=True), reverse=True)
    return {name: score for score, name in best}


def _ndcg(ranked: Mapping[str, float], wanted: Mapping[str, int]) -> float:
    return float(ndcg_at_10({"query": ranked}, {"query": wanted})[0])


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    results = record["results"]
    ways = next(iter(results.values()))
    rows = [[way, *(_cell(of_it[way]) for of_it in results.values())] for way in ways]
    counts = [["queries", *(of_it["one example"]["queries"] for of_it in results.values())]]
    return markdown_table(["nDCG@10 (unwanted, of ten)", *results], [*rows, *counts])


def _cell(figures: Mapping[str, Any]) -> str:
    unwanted = figures["unwanted"]
    return f"{figures['ndcg']:.3f}" + ("" if unwanted is None else f" ({10 * unwanted:.1f})")


if __name__ == "__main__":
    typer.run(main)
