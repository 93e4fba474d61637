"""Export a checkpoint to ONNX: two graphs for each precision, compared with the model.

A model with sections has a third one, in fp32 alone (`training.export.graphs`). Exports for users
also pass the quality gate, which compares smaller precisions with fp32.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np
import torch
from torch.export import Dim

from encoder.checkpoint import (
    BLOCK_GRAPH,
    CONFIG,
    DOCUMENT_GRAPH,
    GOLDEN,
    HASHED_TERMS,
    MANIFEST,
    PARITY,
    PRECISIONS,
    SECTION_GRAPH,
    TERMS,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    load_checkpoint,
    locate_file,
    read_weights,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.golden import GOLDEN_TEXTS, GoldenBatch, Parity, check_parity
from encoder.onnx_encoder import OnnxEncoder
from encoder.terms.term_channel import open_term_channel
from encoder.tokenizer import BlockTokenizer
from evaluation.quality_gate import Quality, add_to_report, check_quality, write_quality
from training.export.create import load_model
from training.export.graphs import (
    check_sections,
    export_graph,
    export_section_reader,
    export_step,
    halve,
    read_with_model,
    share_weights,
    with_onnx_lstms,
)
from training.export.quantise import Array, Sample, quantise
from training.models.architecture import EncoderModel
from training.models.ernie_doc import ErnieDoc

# Compares precisions of a checkpoint with its fp32 over documents.
Gate = Callable[[Checkpoint, Sequence[str]], Mapping[str, Quality]]


def export_checkpoint(
    checkpoint: Checkpoint, precisions: Sequence[str], gate: Gate | None = None
) -> dict[str, Parity]:
    """Write graphs, golden batch and reports into a checkpoint directory.

    The directory is changed only if every requested precision passes.

    Args:
        checkpoint: one that has its weights.
        precisions: of "fp32", "fp16" and "int8".
        gate: compares the smaller precisions with fp32 before the graphs are installed; without
            it, graphs are compared with the model only.

    Returns:
        The parity of each precision.
    """
    check_precisions(precisions, PRECISIONS)
    model = load_model(checkpoint)
    golden = compute_golden_batch(checkpoint, model)
    with staged_graphs(checkpoint.directory, precisions) as staging:
        _write_graphs(model, staging, precisions, _samples(checkpoint, model, golden))
        if model.section_reader is not None:
            export_section_reader(model, staging / SECTION_GRAPH)
        write_manifest(staging)
        staged = load_checkpoint(staging)
        parities = {precision: _measure(staged, golden, precision) for precision in precisions}
        for precision, parity in parities.items():
            check_parity(parity, precision)
        check_sections(model, staged, golden)
        smaller = [precision for precision in precisions if precision != "fp32"]
        qualities = gate(staged, smaller) if gate and smaller else {}
        for precision, quality in qualities.items():
            check_quality(quality, precision)
    write_golden_batch(checkpoint.directory, golden)
    add_to_report(
        checkpoint.directory / PARITY, {name: asdict(parity) for name, parity in parities.items()}
    )
    if qualities:
        write_quality(checkpoint.directory, qualities)
    write_manifest(checkpoint.directory)
    return parities


def check_precisions(precisions: Sequence[str], known: Sequence[str]) -> None:
    """Check the precisions of an export."""
    unknown = [name for name in precisions if name not in known]
    if unknown or not precisions:
        raise CheckpointError(f"precision must be of {', '.join(known)}, not {unknown}")


@contextmanager
def staged_graphs(directory: Path, precisions: Sequence[str]) -> Iterator[Path]:
    """Give a directory to write graphs into, with the other files that a checkpoint is opened by.

    The graphs of the precisions replace those of the checkpoint at the end, unless an error is
    raised.
    """
    with tempfile.TemporaryDirectory(dir=directory) as name:
        staging = Path(name)
        for file in (CONFIG, TOKENIZER, MANIFEST, TERMS, HASHED_TERMS, WEIGHTS):
            if locate_file(directory, file).exists():
                shutil.copy(locate_file(directory, file), staging / file)
        yield staging
        for precision in precisions:
            shutil.copytree(staging / precision, directory / precision, dirs_exist_ok=True)
        if (staging / SECTION_GRAPH).exists():
            shutil.copy(staging / SECTION_GRAPH, directory / SECTION_GRAPH)


def write_golden_batch(directory: Path, golden: GoldenBatch) -> None:
    """Write the golden batch into a checkpoint directory."""
    np.savez_compressed(
        directory / GOLDEN,
        tokens=np.concatenate([np.array(block, dtype=np.int32) for block in golden.blocks]),
        lengths=np.array([len(block) for block in golden.blocks], dtype=np.int32),
        sizes=np.array(golden.sizes, dtype=np.int32),
        block_vectors=golden.block_vectors,
        term_features=golden.term_features,
        document_vectors=golden.document_vectors,
    )


def compute_golden_batch(checkpoint: Checkpoint, model: EncoderModel) -> GoldenBatch:
    """Encode the golden texts with the model itself, one document at a time, without padding."""
    tokenizer = BlockTokenizer(checkpoint)
    documents = [tokenizer(text) for text in GOLDEN_TEXTS]
    channel = open_term_channel(checkpoint)
    terms = [channel.features(document.blocks) for document in documents]
    blocks, vectors = [], []
    with torch.no_grad():
        for document, features in zip(documents, terms, strict=True):
            stacked, _ = read_with_model(checkpoint, model, document.blocks)  # [S, H]
            mask = torch.ones(1, len(stacked), dtype=torch.int64)
            also = [torch.from_numpy(features)[None]] if len(features) else []
            read = torch.from_numpy(stacked)[None]
            vectors.append(model.document_encoder(read, mask, *also)[0].numpy())
            blocks.append(stacked)
    return GoldenBatch(
        blocks=tuple(tuple(block) for document in documents for block in document.blocks),
        sizes=tuple(len(document.blocks) for document in documents),
        block_vectors=np.concatenate(blocks),
        term_features=np.stack(terms),
        document_vectors=np.stack(vectors),
    )


def _samples(
    checkpoint: Checkpoint, model: EncoderModel, golden: GoldenBatch
) -> dict[str, list[Sample]]:
    """Return the golden batch as inputs of each graph, for the quantiser to learn ranges from."""
    blocks: list[Sample] = []
    documents: list[Sample] = []
    for start, end in pairwise([0, *accumulate(golden.sizes)]):
        blocks += read_with_model(checkpoint, model, golden.blocks[start:end])[1]
        mask = np.ones((1, end - start), dtype=np.int64)
        sample: dict[str, Array] = {
            "block_vectors": golden.block_vectors[None, start:end],
            "block_mask": mask,
        }
        if golden.term_features.shape[1]:
            sample["term_features"] = golden.term_features[None, len(documents)]
        documents.append(sample)
    return {BLOCK_GRAPH: blocks, DOCUMENT_GRAPH: documents}


def _write_graphs(
    model: EncoderModel,
    directory: Path,
    precisions: Sequence[str],
    samples: Mapping[str, Sequence[Sample]],
) -> None:
    fp32 = directory / "fp32"
    fp32.mkdir()
    _export_block_encoder(model, fp32 / BLOCK_GRAPH)
    _export_document_encoder(model, fp32 / DOCUMENT_GRAPH)
    for precision in precisions:
        target = directory / precision
        target.mkdir(exist_ok=True)
        for graph in (BLOCK_GRAPH, DOCUMENT_GRAPH):
            if precision == "int8":
                quantise(fp32 / graph, target / graph, samples[graph])
            elif precision == "fp16":
                halve(fp32 / graph, target / graph)
                share_weights(target / graph, read_weights(directory))


def _export_block_encoder(model: EncoderModel, path: Path) -> None:
    if isinstance(model, ErnieDoc):
        export_step(model, path)
        return
    config = model.config
    ids = torch.ones(2, config.block_length, dtype=torch.int64)
    shape = {0: Dim("blocks"), 1: Dim("tokens", min=2, max=config.block_length)}
    export_graph(
        model.block_encoder,
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        {"input_ids": shape, "attention_mask": shape},
        ["block_vectors"],
        path,
    )


def _export_document_encoder(model: EncoderModel, path: Path) -> None:
    config = model.config
    documents = Dim("documents")
    shape = {0: documents, 1: Dim("blocks", min=1, max=config.max_blocks)}
    blocks = min(3, config.max_blocks)
    inputs = {
        "block_vectors": torch.rand(2, blocks, config.hidden_size),
        "block_mask": torch.ones(2, blocks, dtype=torch.int64),
    }
    shapes = {"block_vectors": shape, "block_mask": shape}
    if width := getattr(config, "term_width", 0):
        inputs["term_features"] = torch.rand(2, width)
        shapes["term_features"] = {0: documents}
    export_graph(
        with_onnx_lstms(model.document_encoder), inputs, shapes, ["document_vectors"], path
    )


def _measure(staged: Checkpoint, golden: GoldenBatch, precision: str) -> Parity:
    encoder = OnnxEncoder(staged, precision=precision, providers=["cpu"])
    return golden.compare(golden.encode(encoder.encode_blocks), encoder.combine)
