"""Are explanations correct, and what do they cost?

    python -m benchmarks.quality.explanations [--corpus CORPUS …]

Pairs with known shared text (`planted_pairs`) are compared: precision and recall of the
aligned characters of both sides, error of the coverage, confusion table of the relations. Documents
and seed differ from those that the thresholds were fitted on (`fit_alignment`).
"""

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, corpus_name, make_record, markdown_table, write_record
from benchmarks.quality.explanation_pairs import (
    RELATIONS,
    PairOutcome,
    ReadPair,
    compare_pairs,
    precision_recall,
    where_truth_is_known,
)
from benchmarks.quality.fit_alignment import SEED, read_all
from encoder.comparison.alignment import ALIGNMENT_RULE
from encoder.comparison.compare import compare_texts
from encoder.comparison.text import prepare_text
from index.sqlite.block_vectors import BlockVectors

TEST_SEED = SEED + 1
_TIMED_BLOCKS = 100
_REPETITIONS = 20


def measure(outcomes: Sequence[PairOutcome]) -> dict[str, Any]:
    """Return the measurements of some pairs, as stored in the record."""
    kinds: dict[tuple[str, float], list[PairOutcome]] = defaultdict(list)
    for one in outcomes:
        kinds[one.pair.kind, one.pair.share].append(one)
    confusion = Counter((one.pair.relation, one.relation) for one in outcomes)
    known = where_truth_is_known(outcomes)
    shuffled = [one for one in known if one.pair.shuffled]
    return {
        "all": _row(known),
        "shuffled": _row(shuffled),
        "in order": _row([one for one in known if 0 < one.pair.share < 1 and one not in shuffled]),
        "kinds": [
            {"kind": kind, "share": share, **_row(some)}
            for (kind, share), some in sorted(kinds.items())
        ],
        "confusion": [[confusion[true, named] for named in RELATIONS] for true in RELATIONS],
        "relations": list(RELATIONS),
    }


def measure_time(pairs: Sequence[ReadPair]) -> dict[str, float]:
    """Return milliseconds to read a text and to compare two, of 100 blocks each."""
    text = "\n\n".join(one.pair.right for one in pairs)
    other = "\n\n".join(one.pair.left for one in reversed(pairs))
    vectors = np.concatenate([one.right.block_vectors for one in pairs])[: 2 * _TIMED_BLOCKS]
    size = len(pairs[0].pair.left) // len(pairs[0].left.offsets)  # characters of a block
    texts = [text[: size * _TIMED_BLOCKS], other[: size * _TIMED_BLOCKS]]
    starts = np.arange(_TIMED_BLOCKS) * size
    blocks = [
        BlockVectors(np.stack([starts, starts + size], axis=1), vectors[:_TIMED_BLOCKS]),
        BlockVectors(np.stack([starts, starts + size], axis=1), vectors[_TIMED_BLOCKS:]),
    ]
    reading, comparing = [], []
    for _ in range(_REPETITIONS):
        started = time.process_time()
        read = [
            prepare_text(one, vectors[0], of.vectors, of.offsets)
            for one, of in zip(texts, blocks, strict=True)
        ]
        opened = time.process_time()
        compare_texts(read[0], read[1])
        reading.append((opened - started) / 2)
        comparing.append(time.process_time() - opened)
    return {"read_ms": 1000 * median(reading), "compare_ms": 1000 * median(comparing)}


def table(record: dict[str, Any]) -> str:
    """Format a record: characters and coverage by kind of pair, relations, time."""
    results = record["results"]
    parts = []
    for name, found in results["corpora"].items():
        rows = [
            [_name(row), row["pairs"], *(_shown(row, key) for key in ("precision", "recall")),
             f"{row['coverage_error']:.3f}"]
            for row in [*found["kinds"], *({"kind": key, **found[key]} for key in
                        ("in order", "shuffled", "all"))]
        ]  # fmt: skip
        header = ["pairs", "number", "precision", "recall", "error of coverage"]
        confusion = [
            [true, *counts]
            for true, counts in zip(found["relations"], found["confusion"], strict=True)
        ]
        parts += [
            f"**{name}**", markdown_table(header, rows),
            markdown_table(["is, and is called", *found["relations"]], confusion),
        ]  # fmt: skip
    timed = results["time"]
    parts.append(
        f"Two texts of {record['settings']['timed_blocks']} blocks: "
        f"{timed['compare_ms']:.0f} ms to compare, {timed['read_ms']:.0f} ms to read each."
    )
    return "\n\n".join(parts)


def _row(outcomes: Sequence[PairOutcome]) -> dict[str, Any]:
    precision, recall = precision_recall(outcomes)
    errors = [error for one in outcomes for error in one.coverage_errors]
    return {
        "pairs": len(outcomes),
        "precision": precision,
        "recall": recall,
        "aligned": sum(one.aligned for one in outcomes),
        "shared": sum(one.shared for one in outcomes),
        "coverage_error": mean(errors) if errors else 0.0,
    }


def _name(row: dict[str, Any]) -> str:
    share = row.get("share", 0.0)
    return f"{row['kind']}, {100 * share:.0f} %" if 0 < share < 1 else str(row["kind"])


def _shown(row: dict[str, Any], figure: str) -> str:
    counted = "aligned" if figure == "precision" else "shared"
    return f"{row[figure]:.3f}" if row[counted] else "none"


def main(
    corpus: Annotated[
        list[Path] | None, typer.Option(help="Beside Python's documentation; may be repeated.")
    ] = None,
    documents: Annotated[int, typer.Option(help="Documents of each corpus.")] = 60,
    pairs: Annotated[int, typer.Option(help="Pairs of each corpus.")] = 192,
) -> None:
    """Measure explanations and write the record."""
    source = commit()
    corpora: list[Path | None] = [None, *(corpus or [])]
    read = {
        corpus_name(one): read_all([one], documents, pairs, TEST_SEED, fitted=False)
        for one in corpora
    }
    results = {
        "corpora": {
            name.replace("/", " "): measure(compare_pairs(some, ALIGNMENT_RULE))
            for name, some in read.items()
        },
        "time": measure_time(next(iter(read.values()))),
    }
    settings = {
        "documents": documents,
        "pairs": pairs,
        "seed": TEST_SEED,
        "rule": asdict(ALIGNMENT_RULE),
        "timed_blocks": _TIMED_BLOCKS,
    }
    record = make_record("explanations", source, settings, results)
    typer.echo(f"{write_record(record).name}\n\n{table(record)}")


if __name__ == "__main__":
    typer.run(main)
