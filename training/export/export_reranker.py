"""Export a reranker to ONNX: one graph for all lengths, compared with the model.

How many words are left after each layer is a fixed share of the length of a pair, so that for each
length the sizes of all tensors are known before a word is read.
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import Dim

from encoder.checkpoint import GOLDEN, PAIR_GRAPH, PARITY, write_manifest
from encoder.golden import GOLDEN_TEXTS
from encoder.reranker.checkpoint import (
    RERANKER_PRECISIONS,
    RerankerCheckpoint,
    load_reranker_checkpoint,
)
from encoder.reranker.onnx_reranker import (
    GoldenPairs,
    OnnxReranker,
    check_pair_parity,
)
from encoder.reranker.pair_tokenizer import PairTokenizer, PairTokens
from evaluation.quality_gate import add_to_report
from training.export.create import load_reranker_model
from training.export.export import check_precisions, staged_graphs
from training.export.graphs import export_graph
from training.export.quantise import Sample, quantise
from training.models.match_ignition import MatchIgnition

_SHORTEST = 3  # [CLS] and both [SEP]
_INPUTS = ("input_ids", "token_types", "special")


def export_reranker(checkpoint: RerankerCheckpoint, precisions: Sequence[str]) -> dict[str, float]:
    """Write graphs, golden pairs and parity report into the directory of a reranker.

    The directory is changed only if every requested precision passes. Returned is the largest
    difference of a logit to the model's, for each precision.
    """
    check_precisions(precisions, RERANKER_PRECISIONS)
    model = load_reranker_model(checkpoint)
    pairs = golden_pairs_of(checkpoint)
    golden = GoldenPairs(tuple(pairs), score_with_model(model, pairs))
    with staged_graphs(checkpoint.directory, precisions) as staging:
        _write_graphs(model, staging, precisions, pairs)
        write_manifest(staging)
        staged = load_reranker_checkpoint(staging)
        differences = {p: _measure(staged, golden, p) for p in precisions}
    write_golden_pairs(checkpoint.directory, golden)
    figures = {precision: {"difference": value} for precision, value in differences.items()}
    add_to_report(checkpoint.directory / PARITY, figures)
    write_manifest(checkpoint.directory)
    return differences


def write_golden_pairs(directory: Path, golden: GoldenPairs) -> None:
    """Write the golden pairs into the directory of a reranker."""

    def joined(name: str) -> NDArray[np.int32]:
        return np.concatenate([getattr(pair, name) for pair in golden.pairs]).astype(np.int32)

    np.savez_compressed(
        directory / GOLDEN,
        lengths=np.array([len(pair) for pair in golden.pairs], dtype=np.int32),
        logits=golden.logits,
        input_ids=joined("input_ids"),
        token_types=joined("token_types"),
        special=joined("special"),
    )


def golden_pairs_of(checkpoint: RerankerCheckpoint) -> list[PairTokens]:
    """Return the golden pairs as the checkpoint reads them: short, long, alike and different."""
    reader = PairTokenizer(checkpoint)
    texts = [reader.read(text) for text in GOLDEN_TEXTS]
    chosen = [(a, b) for a, b in combinations(range(len(texts)), 2) if (a + b) % 2]
    return [reader.pair(texts[a], texts[b]) for a, b in [*chosen, (0, 0), (1, 1), (6, 6)]]


def score_with_model(model: MatchIgnition, pairs: Sequence[PairTokens]) -> "np.ndarray":
    """Return the logits Float32[N] of pairs by the model, one at a time, without padding."""
    with torch.no_grad():
        logits = [model(*(t[None] for t in _tensors(pair))) for pair in pairs]
    return torch.cat(logits).numpy().astype(np.float32)


def _tensors(pair: PairTokens) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(getattr(pair, name)) for name in _INPUTS)


def _write_graphs(
    model: MatchIgnition, directory: Path, precisions: Sequence[str], pairs: Sequence[PairTokens]
) -> None:
    fp32 = directory / "fp32"
    fp32.mkdir()
    longest = max(pairs, key=len)
    inputs = {
        name: torch.stack([tensor, tensor])
        for name, tensor in zip(_INPUTS, _tensors(longest), strict=True)
    }
    shape = {0: Dim("pairs"), 1: Dim("tokens", min=_SHORTEST, max=model.config.length)}
    export_graph(model, inputs, dict.fromkeys(_INPUTS, shape), ["logits"], fp32 / PAIR_GRAPH)
    if "int8" in precisions:
        (directory / "int8").mkdir()
        samples: list[Sample] = [
            {name: getattr(pair, name)[np.newaxis] for name in _INPUTS} for pair in pairs
        ]
        quantise(fp32 / PAIR_GRAPH, directory / "int8" / PAIR_GRAPH, samples)


def _measure(staged: RerankerCheckpoint, golden: GoldenPairs, precision: str) -> float:
    reranker = OnnxReranker(staged, precision=precision)
    difference = golden.difference(reranker.score_tokens)
    check_pair_parity(difference, precision)
    return difference
