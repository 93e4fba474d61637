"""Export a checkpoint to ONNX: two graphs a precision, each held against the model itself."""

import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import convert_float_to_float16
from torch import nn
from torch.export import Dim

from encoder.checkpoint import (
    BLOCK_GRAPH,
    DOCUMENT_GRAPH,
    PARITY,
    PRECISIONS,
    Checkpoint,
    load_checkpoint,
    write_manifest,
)
from encoder.create import load_model
from encoder.errors import CheckpointError
from encoder.golden import GoldenBatch, Parity, check_parity, write_golden_batch
from encoder.golden_texts import GOLDEN_TEXTS
from encoder.models.smith import Smith
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer

_OPSET = 20  # the first with Gelu as one operator


def export_checkpoint(checkpoint: Checkpoint, precisions: Sequence[str]) -> dict[str, Parity]:
    """Write graphs, golden batch and parity report into a checkpoint directory.

    Nothing is changed in the directory unless every precision asked for passes.

    Args:
        checkpoint: one that has its weights.
        precisions: of "fp32", "fp16" and "int8".

    Returns:
        The parity of each precision.

    Raises:
        CheckpointError: an unknown precision, or no weights.
        ParityError: a graph does not compute what the model computes.
    """
    unknown = [name for name in precisions if name not in PRECISIONS]
    if unknown or not precisions:
        raise CheckpointError(f"precision must be of {', '.join(PRECISIONS)}, not {unknown}")
    model = load_model(checkpoint)
    with tempfile.TemporaryDirectory(dir=checkpoint.directory) as name:
        staging = Path(name)
        _write_graphs(model, staging, precisions)
        golden = compute_golden_batch(checkpoint, model)
        parities = {p: _measure(checkpoint, staging, golden, p) for p in precisions}
        for precision, parity in parities.items():
            check_parity(parity, precision)
        for precision in precisions:
            shutil.copytree(
                staging / precision, checkpoint.directory / precision, dirs_exist_ok=True
            )
    write_golden_batch(checkpoint.directory, golden)
    _write_parity(checkpoint.directory, parities)
    write_manifest(checkpoint.directory)
    return parities


def compute_golden_batch(checkpoint: Checkpoint, model: Smith) -> GoldenBatch:
    """Encode the golden texts with the model itself, one document at a time, without padding."""
    tokenizer = BlockTokenizer(checkpoint)
    documents = [tokenizer(text) for text in GOLDEN_TEXTS]
    blocks, vectors = [], []
    with torch.no_grad():
        for document in documents:
            rows = [_encode_block(checkpoint, model, block) for block in document.blocks]
            stacked = torch.cat(rows)  # [S, H]
            mask = torch.ones(1, len(stacked), dtype=torch.int64)
            vectors.append(model.document_encoder(stacked[None], mask)[0].numpy())
            blocks.append(stacked.numpy())
    return GoldenBatch(
        blocks=tuple(tuple(block) for document in documents for block in document.blocks),
        sizes=tuple(len(document.blocks) for document in documents),
        block_vectors=np.concatenate(blocks),
        document_vectors=np.stack(vectors),
    )


def _encode_block(checkpoint: Checkpoint, model: Smith, block: Sequence[int]) -> torch.Tensor:
    ids = torch.tensor([[checkpoint.start_token, *block, checkpoint.end_token]])
    result: torch.Tensor = model.block_encoder(ids, torch.ones_like(ids))
    return result


def _write_graphs(model: Smith, directory: Path, precisions: Sequence[str]) -> None:
    fp32 = directory / "fp32"
    fp32.mkdir()
    _export_block_encoder(model, fp32 / BLOCK_GRAPH)
    _export_document_encoder(model, fp32 / DOCUMENT_GRAPH)
    for precision in precisions:
        target = directory / precision
        target.mkdir(exist_ok=True)
        for graph in (BLOCK_GRAPH, DOCUMENT_GRAPH):
            if precision == "int8":
                _quantise(fp32 / graph, target / graph)
            elif precision == "fp16":
                _halve(fp32 / graph, target / graph)


def _export_block_encoder(model: Smith, path: Path) -> None:
    config = model.config
    ids = torch.ones(2, config.block_length, dtype=torch.int64)
    shape = {0: Dim("blocks"), 1: Dim("tokens", min=2, max=config.block_length)}
    _export(
        model.block_encoder,
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        {"input_ids": shape, "attention_mask": shape},
        "block_vectors",
        path,
    )


def _export_document_encoder(model: Smith, path: Path) -> None:
    config = model.config
    shape = {0: Dim("documents"), 1: Dim("blocks", min=1, max=config.max_blocks)}
    blocks = min(3, config.max_blocks)
    _export(
        model.document_encoder,
        {
            "block_vectors": torch.rand(2, blocks, config.hidden_size),
            "block_mask": torch.ones(2, blocks, dtype=torch.int64),
        },
        {"block_vectors": shape, "block_mask": shape},
        "document_vectors",
        path,
    )


def _export(
    module: nn.Module,
    inputs: dict[str, torch.Tensor],
    dynamic_shapes: dict[str, dict[int, Dim]],
    output: str,
    path: Path,
) -> None:
    with _quiet(), torch.no_grad():
        torch.onnx.export(
            module,
            kwargs=inputs,
            f=path,
            input_names=list(inputs),
            output_names=[output],
            dynamic_shapes=dynamic_shapes,
            opset_version=_OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _quantise(source: Path, target: Path) -> None:
    """Quantise the weights to int8 and the activations dynamically, per tensor.

    The projections that end in a unit vector stay in fp32: they cost nothing and decide all.
    Weights keep to 7 bits, since processors without VNNI add two products of 8 bits into 16.
    """
    graph = onnx.load(source)
    del graph.graph.value_info[:]  # the quantiser transposes weights and keeps their old shapes
    kept = [n.name for n in graph.graph.node if any("projection" in name for name in n.input)]
    kept += [f"{name}_MatMul" for name in kept]  # what the quantiser makes of a Gemm
    with _quiet():
        quantize_dynamic(
            graph,
            target,
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=kept,
        )


def _halve(source: Path, target: Path) -> None:
    with _quiet():
        graph = convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(graph, target)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence exporters: they warn of their own internals, and of weights too small for fp16."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _measure(checkpoint: Checkpoint, staging: Path, golden: GoldenBatch, precision: str) -> Parity:
    for name in ("config.json", "tokenizer.json", "manifest.json"):
        shutil.copy(checkpoint.directory / name, staging / name)
    write_manifest(staging)
    staged = load_checkpoint(staging)
    encoder = OnnxEncoder(staged, precision=precision, providers=["cpu"])
    return golden.measure(encoder.encode_blocks, encoder.encode_document)


def _write_parity(directory: Path, parities: dict[str, Parity]) -> None:
    path = directory / PARITY
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    report |= {precision: asdict(parity) for precision, parity in parities.items()}
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
