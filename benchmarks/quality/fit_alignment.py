"""Fit the thresholds of alignment on generated pairs, and print them.

    python -m benchmarks.quality.fit_alignment [--corpus CORPUS …]

Documents whose id has an even SHA-256 digest are used for fitting;
`benchmarks.quality.explanations` evaluates on the others, with another seed. The background
similarity of unrelated texts is measured. The other thresholds are fitted by coordinate descent, in
two passes.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from statistics import mean, median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import read_documents
from benchmarks.quality.explanation_pairs import (
    RELATIONS,
    PairOutcome,
    ReadPair,
    compare_pairs,
    precision_recall,
    read_pairs,
    where_truth_is_known,
)
from benchmarks.quality.planted_pairs import LEAST_WORDS, make_pairs
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.comparison.alignment import ALIGNMENT_RULE, AlignmentThresholds
from encoder.comparison.matches import Background, measure_background
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.document import Document

SEED = 1
GRID: dict[str, tuple[float, ...]] = {
    "shingle": (5, 6, 7, 8, 10),
    "least_words": (6, 8, 10, 12, 16),
    "gap": (4, 8, 12, 20, 30),
    "sentence_cosine": (0.3, 0.35, 0.4, 0.45, 0.5, 0.6),
    "sentence_shared": (3, 4, 5, 6),
    "paraphrase_cosine": (0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
    "verbatim_share": (0.7, 0.8, 0.85, 0.9, 0.95),
    "copied_share": (0.25, 0.3, 0.35, 0.4),
    "topic_score": (0.3, 0.35, 0.4, 0.45, 0.5),
}
WHOLE_NUMBERS = ("shingle", "least_words", "gap", "sentence_shared")
_NONE = Background(0.0, 0.0)
_NEIGHBOURS = 5  # how many other texts each text is compared with
TIE = 1e-4  # minimum gain for a value to replace the current one


def of_half(documents: Iterable[Document], *, fitted: bool, limit: int) -> list[Document]:
    """Return the first long enough documents of the half used for fitting, or of the other half."""
    kept = (
        document
        for document in documents
        if len(document.text.split()) >= LEAST_WORDS
        and (hashlib.sha256(document.id.encode()).digest()[-1] % 2 == 0) == fitted
    )
    return [document for _, document in zip(range(limit), kept, strict=False)]


def fit_score(outcomes: Sequence[PairOutcome]) -> float:
    """Return F1 of aligned characters, mean over kinds of pairs, plus mean recall of relations."""
    kinds: dict[tuple[str, float], list[PairOutcome]] = defaultdict(list)
    relations: dict[str, list[bool]] = defaultdict(list)
    for one in where_truth_is_known(outcomes):
        kinds[one.pair.kind, one.pair.share].append(one)
    for one in outcomes:
        relations[one.pair.relation].append(one.relation == one.pair.relation)
    return mean(map(_f1, kinds.values())) + mean(mean(right) for right in relations.values())


def fit(pairs: Sequence[ReadPair], rule: AlignmentThresholds, rounds: int) -> AlignmentThresholds:
    """Return the rule found by optimising one threshold after another."""
    best = fit_score(compare_pairs(pairs, rule))
    for _ in range(rounds):
        for name, values in GRID.items():
            for value in values:
                other = _changed(rule, name, value)
                if other == rule:
                    continue
                found = fit_score(compare_pairs(pairs, other))
                if found > best + TIE:
                    best, rule = found, other
            typer.echo(f"{name} = {getattr(rule, name)}: {best:.4f}")
    return rule


def _changed(rule: AlignmentThresholds, name: str, value: float) -> AlignmentThresholds:
    number: Any = int(value) if name in WHOLE_NUMBERS else value
    return replace(rule, **{name: number})


def background_of(pairs: Sequence[ReadPair]) -> Background:
    """Return the background of texts that have nothing to do with each other, at the median."""
    found = [
        measure_background(one.left.block_vectors, one.right.block_vectors, _NONE)
        for one in pairs
        if one.pair.relation == RELATIONS[-1]
    ]
    return Background(
        round(median(one.centre for one in found), 3), round(median(one.spread for one in found), 3)
    )


def block_thresholds(pairs: Sequence[ReadPair]) -> tuple[float, float]:
    """Return the deviations and the cosine that 19 of 20 pairs of unrelated texts stay under."""
    texts = list({one.pair.left: one.left for one in pairs}.values())
    highest = []
    for number, left in enumerate(texts):
        for right in texts[number + 1 : number + 1 + _NEIGHBOURS]:
            found = measure_background(left.block_vectors, right.block_vectors, _NONE)
            best = float((left.block_vectors @ right.block_vectors.T).max())
            highest.append(((best - found.centre) / found.spread, best))
    deviations, cosine = np.percentile(np.array(highest), 95, axis=0).tolist()
    return round(deviations, 2), round(cosine, 2)


def read_all(
    corpora: Sequence[Path | None], documents: int, pairs: int, seed: int, *, fitted: bool
) -> list[ReadPair]:
    """Make pairs of one half of each corpus and encode them."""
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    tokenizer, encoder = BlockTokenizer(checkpoint), OnnxEncoder(checkpoint)
    made = [
        pair
        for corpus in corpora
        for pair in make_pairs(
            of_half(read_documents(corpus, 10**9), fitted=fitted, limit=documents), pairs, seed
        )
    ]
    return read_pairs(made, tokenizer, encoder)


def _f1(outcomes: Sequence[PairOutcome]) -> float:
    precision, recall = precision_recall(outcomes)
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def main(
    corpus: Annotated[
        list[Path] | None, typer.Option(help="Beside Python's documentation; may be repeated.")
    ] = None,
    documents: Annotated[int, typer.Option(help="Documents of each corpus.")] = 60,
    pairs: Annotated[int, typer.Option(help="Pairs of each corpus.")] = 96,
    rounds: Annotated[int, typer.Option(help="Passes over all thresholds.")] = 2,
) -> None:
    """Fit the thresholds and print them."""
    read = read_all([None, *(corpus or [])], documents, pairs, SEED, fitted=True)
    deviations, cosine = block_thresholds(read)
    start = replace(
        ALIGNMENT_RULE,
        background=background_of(read),
        deviations=deviations,
        least_cosine=cosine,
    )
    rule = fit(read, start, rounds)
    for field in fields(rule):
        typer.echo(f"    {field.name} = {getattr(rule, field.name)}")


if __name__ == "__main__":
    typer.run(main)
