"""Export a reranker to ONNX: one graph for every length, held against the model itself.

How many words are left after each layer is a fixed share of the length of a pair, so that for each
length the sizes of all tensors are known before a word is read.
"""

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.export import Dim

from encoder.checkpoint import CONFIG, PARITY, TOKENIZER, WEIGHTS
from encoder.errors import CheckpointError
from encoder.export.create import load_reranker_model
from encoder.export.export import export_graph
from encoder.export.quantise import Sample, quantise
from encoder.models.match_ignition import MatchIgnition
from encoder.reranker.checkpoint import (
    PAIR_GRAPH,
    RERANKER_PRECISIONS,
    RerankerCheckpoint,
    load_reranker_checkpoint,
    write_reranker_manifest,
)
from encoder.reranker.golden import (
    GoldenPairs,
    check_pair_parity,
    golden_pairs_of,
    write_golden_pairs,
)
from encoder.reranker.onnx_reranker import OnnxReranker
from encoder.reranker.pair_tokenizer import PairTokens

_SHORTEST = 3  # [CLS] and both [SEP]
_INPUTS = ("input_ids", "token_types", "special")


def export_reranker(checkpoint: RerankerCheckpoint, precisions: Sequence[str]) -> dict[str, float]:
    """Write graphs, golden pairs and parity report into the directory of a reranker.

    Nothing is changed in it unless every precision asked for passes.

    Args:
        checkpoint: one that has its weights.
        precisions: of "fp32" and "int8".

    Returns:
        The largest difference of a logit to the model's, for each precision.

    Raises:
        CheckpointError: an unknown precision, or no weights.
        ParityError: a graph does not compute what the model computes.
    """
    unknown = [name for name in precisions if name not in RERANKER_PRECISIONS]
    if unknown or not precisions:
        known = ", ".join(RERANKER_PRECISIONS)
        raise CheckpointError(f"precision must be of {known}, not {unknown}")
    model = load_reranker_model(checkpoint)
    pairs = golden_pairs_of(checkpoint)
    golden = GoldenPairs(tuple(pairs), judge_with_model(model, pairs))
    with tempfile.TemporaryDirectory(dir=checkpoint.directory) as name:
        staging = Path(name)
        for file in (CONFIG, TOKENIZER, WEIGHTS):
            (staging / file).hardlink_to(checkpoint.directory / file)
        write_golden_pairs(staging, golden)
        _write_graphs(model, staging, precisions, pairs)
        write_reranker_manifest(staging)
        staged = load_reranker_checkpoint(staging)
        differences = {p: _measure(staged, golden, p) for p in precisions}
        for precision in precisions:
            target = checkpoint.directory / precision
            shutil.copytree(staging / precision, target, dirs_exist_ok=True)
    write_golden_pairs(checkpoint.directory, golden)
    report = {precision: {"difference": value} for precision, value in differences.items()}
    (checkpoint.directory / PARITY).write_text(json.dumps(report, indent=2) + "\n")
    write_reranker_manifest(checkpoint.directory)
    return differences


def judge_with_model(model: MatchIgnition, pairs: Sequence[PairTokens]) -> "np.ndarray":
    """Return the logits Float32[N] of pairs by the model itself, one at a time, without padding."""
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
    export_graph(model, inputs, dict.fromkeys(_INPUTS, shape), "logits", fp32 / PAIR_GRAPH)
    if "int8" in precisions:
        (directory / "int8").mkdir()
        samples: list[Sample] = [
            {name: getattr(pair, name)[np.newaxis] for name in _INPUTS} for pair in pairs
        ]
        quantise(fp32 / PAIR_GRAPH, directory / "int8" / PAIR_GRAPH, samples)


def _measure(staged: RerankerCheckpoint, golden: GoldenPairs, precision: str) -> float:
    reranker = OnnxReranker(staged, precision=precision)
    difference = golden.difference(reranker.judge_tokens)
    check_pair_parity(difference, precision)
    return difference
