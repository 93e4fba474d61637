"""How many candidates does a search have to align?

    python -m benchmarks.quality.alignment_depth --data DATA --blocks KEPT

Each corpus with judgements is stored with the block vectors that `benchmarks.quality.retrieval`
keeps, and searched for its queries. Alignment that ends when no other candidate is likely to be
among the best is compared with alignment that goes on until none can be, and with fixed numbers.
"""

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, markdown_table, write_record
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from benchmarks.quality.stored_corpus import stored_corpus, stored_queries
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.judgements import read_qrels
from evaluation.metrics import ndcg_at_10
from index.directory.data_directory import DataDirectory
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import read_fusion
from index.search.records import (
    DEFAULT_ALIGNMENT,
    AlignmentOptions,
    EncodedQuery,
    Mode,
    SearchAnswer,
    SearchOptions,
)
from index.search.search import search

MODES: tuple[Mode, ...] = ("hybrid", "semantic")
K = 10
_UNHURRIED = replace(DEFAULT_ALIGNMENT, budget_seconds=math.inf)
EVERY = "until none can be"
WAYS: dict[str, AlignmentOptions | None] = {
    EVERY: replace(_UNHURRIED, margin=math.inf),
    "until none is likely": _UNHURRIED,
    "25": replace(_UNHURRIED, candidates=25),
    "100": replace(_UNHURRIED, candidates=100),
    "none": None,
}


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    split: Annotated[str, typer.Option(help="valid or test: the queries.")] = "valid",
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
) -> None:
    """Measure how deep alignment has to go on every corpus that has judgements."""
    source, encoder = commit(), OnnxEncoder(load_checkpoint(DEFAULT_CHECKPOINT))
    results = {}
    for part in find_corpora(data, split):
        with tempfile.TemporaryDirectory() as folder:
            results[part.folder.name] = measure(
                part, encoder, blocks / part.folder.name, Path(folder)
            )
    settings = {"split": split, "k": K, "checkpoint": encoder.checkpoint.name}
    record = make_record("alignment-depth", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(part: CorpusPart, encoder: OnnxEncoder, blocks: Path, folder: Path) -> dict[str, Any]:
    """Measure one corpus, stored in a data directory in the folder."""
    with stored_corpus(part, encoder, blocks, folder) as data:
        queries = stored_queries(data, part)
        qrels = read_qrels(part.folder / "qrels.tsv")
        judged = {name: qrels[name] for name in queries}
        return {
            "documents": len(data.store),
            "queries": len(queries),
            "modes": {mode: _compare(data, encoder, mode, queries, judged) for mode in MODES},
        }


def _compare(
    data: DataDirectory,
    encoder: OnnxEncoder,
    mode: Mode,
    queries: Mapping[str, EncodedQuery],
    judged: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, float]]:
    fusion, calibrator = read_fusion(encoder.checkpoint), ScoreCalibrator(None, None, None)
    answers: dict[str, dict[str, SearchAnswer]] = {}
    for way, alignment in WAYS.items():
        options = SearchOptions(top_k=K, mode=mode, alignment=alignment)
        answers[way] = {
            name: search(data, one, options, fusion=fusion, calibrator=calibrator, among=None)
            for name, one in queries.items()
        }
    return {way: _figures(found, answers[EVERY], judged) for way, found in answers.items()}


def _figures(
    found: Mapping[str, SearchAnswer],
    every: Mapping[str, SearchAnswer],
    judged: Mapping[str, Mapping[str, int]],
) -> dict[str, float]:
    scores = {name: {hit.id: hit.score for hit in one.hits} for name, one in found.items()}
    receipts = [one.alignment for one in found.values()]
    return {
        "aligned": float(np.mean([0 if one is None else one.scored for one in receipts])),
        "same": float(np.mean([_names(one) == _names(every[name]) for name, one in found.items()])),
        "ndcg": float(np.mean(ndcg_at_10(scores, judged))),
    }


def _names(answer: SearchAnswer) -> Sequence[str]:
    return [hit.id for hit in answer.hits]


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    header = ["corpus", "documents", "queries", "mode", "aligned"]
    header += ["candidates, mean", "the same ten, share", "nDCG@10"]
    rows = [
        [corpus, *(of_it[name] for name in ("documents", "queries")), mode, way]
        + [one[name] for name in ("aligned", "same", "ndcg")]
        for corpus, of_it in record["results"].items()
        for mode, ways in of_it["modes"].items()
        for way, one in ways.items()
    ]
    return markdown_table(header, rows)


if __name__ == "__main__":
    typer.run(main)
