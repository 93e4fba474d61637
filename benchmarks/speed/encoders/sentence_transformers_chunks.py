"""sentence-transformers as commonly used for long documents: chunks, and their mean.

A document is tokenised once and cut into chunks of 256 tokens, two of them special; the vector of
the document is the mean of the chunk vectors. That is less work than `model.encode` on texts of
chunks, which tokenises a second time, so the comparison favours sentence-transformers.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from sentence_transformers import (
    SentenceTransformer,
    export_dynamic_quantized_onnx_model,
    export_static_quantized_openvino_model,
)

from benchmarks.common import cpu_flags, hardware, interleave
from benchmarks.speed.encoders.timed_encoder import TimedEncoder, mean_vectors
from encoder.arrays import Float32, Int64
from encoder.sentences import split_sentences

CHUNK_TOKENS = 256
BATCH_SIZES = (1, 8, 32)
_WARM_UP_CHUNKS = 32
_WARM_UP_ROUNDS = 3
_CALIBRATION_SENTENCES = 100
_TOLERANCE, _LOW_TOLERANCE = 1e-4, 2e-2  # of a shortcut, in fp32 and in a lower precision


@dataclass(frozen=True, slots=True)
class Chunks:
    """Token ids of the chunks of some documents, special tokens included.

    Attributes:
        chunks: of all documents, one after another.
        document: Int64[chunks], which document each belongs to.
    """

    chunks: list[list[int]]
    document: Int64


def open_chunk_encoders(
    folder: Path, threads: int, texts: Sequence[str], work: Path
) -> Iterator[TimedEncoder]:
    """Open the model by PyTorch, ONNX Runtime and OpenVINO, each in every precision it has.

    int8 is that of sentence-transformers itself: dynamic for ONNX Runtime, static for OpenVINO,
    calibrated on chunks of the texts. OpenVINO and bf16 are left out where they cannot be used.

    Args:
        folder: a sentence-transformers model.
        threads: for each of them.
        texts: to find the best batch size with.
        work: a folder for exported models, which are used again if they are there.
    """
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    plain = SentenceTransformer(str(folder), device="cpu")
    yield _tuned("PyTorch fp32", "fp32", plain, texts)
    has_bf16 = "avx512_bf16" in cpu_flags()
    if has_bf16:
        half = SentenceTransformer(str(folder), device="cpu").to(torch.bfloat16)
        yield _tuned("PyTorch bf16", "bf16", half, texts)
    onnx = _open_onnx(folder, threads)
    yield _tuned("ONNX fp32", "fp32", onnx, texts)
    kind = quantisation()
    file = f"onnx/model_qint8_{kind}.onnx"
    if not (work / file).exists():
        onnx.save_pretrained(str(work))
        export_dynamic_quantized_onnx_model(onnx, kind, str(work))
    quantised = _open_onnx(work, threads, file)
    yield _tuned(f"ONNX int8 {kind}", "int8", quantised, texts)
    if find_spec("optimum.intel") is None:
        return
    if has_bf16:
        openvino = _open_openvino(folder, threads, "bf16")
        yield _tuned("OpenVINO bf16", "bf16", openvino, texts)
    yield _tuned("OpenVINO int8", "int8", _quantise_openvino(folder, threads, texts, work), texts)


def quantisation() -> Any:
    """Return the best of sentence-transformers' own int8 settings for this processor."""
    if str(hardware()["system"]).endswith(("arm64", "aarch64")):
        return "arm64"
    return "avx512_vnni" if "avx512_vnni" in cpu_flags() else "avx2"


def tokenise(model: SentenceTransformer, texts: Sequence[str]) -> Chunks:
    """Cut texts into chunks of `CHUNK_TOKENS`."""
    encoding = model.tokenizer(
        list(texts),
        truncation=True,
        max_length=CHUNK_TOKENS,
        return_overflowing_tokens=True,
        return_attention_mask=False,
        verbose=False,
    )
    document = np.array(encoding["overflow_to_sample_mapping"], dtype=np.int64)
    return Chunks(encoding["input_ids"], document)


def encode_documents(model: SentenceTransformer, chunks: Chunks, batch_size: int) -> Float32:
    """Return document vectors Float32[D, dimension], unit norm: the means of chunk vectors."""
    return mean_vectors(encode_chunks(model, chunks.chunks, batch_size), chunks.document)


def encode_chunks(
    model: SentenceTransformer, chunks: Sequence[Sequence[int]], batch_size: int
) -> Float32:
    """Return chunk vectors Float32[N, dimension]; longest first, as `model.encode` does it."""
    order = sorted(range(len(chunks)), key=lambda number: -len(chunks[number]))
    computed: list[Float32] = []
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            some = [chunks[row] for row in order[start : start + batch_size]]
            features = _features(some, model.tokenizer.pad_token_id)
            computed.append(model(features)["sentence_embedding"].float().numpy())
    vectors: Float32 = np.concatenate(computed)[np.argsort(order)]
    return vectors


def _features(chunks: Sequence[Sequence[int]], padding: int) -> dict[str, torch.Tensor]:
    ids = np.full((len(chunks), len(chunks[0])), padding, dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, chunk in enumerate(chunks):
        ids[row, : len(chunk)] = chunk
        mask[row, : len(chunk)] = 1
    arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _open_onnx(folder: Path, threads: int, file: str | None = None) -> SentenceTransformer:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    arguments: dict[str, Any] = {"provider": "CPUExecutionProvider", "session_options": options}
    arguments |= {"file_name": file} if file else {}
    model: SentenceTransformer = SentenceTransformer(
        str(folder), device="cpu", backend="onnx", model_kwargs=arguments
    )
    return model


def _open_openvino(
    folder: Path, threads: int, precision: str, file: str | None = None
) -> SentenceTransformer:
    arguments: dict[str, Any] = {
        "ov_config": {
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": precision,
            "PERFORMANCE_HINT": "LATENCY",
        }
    }
    arguments |= {"file_name": file} if file else {}
    model: SentenceTransformer = SentenceTransformer(
        str(folder), device="cpu", backend="openvino", model_kwargs=arguments
    )
    return model


def _quantise_openvino(
    folder: Path, threads: int, texts: Sequence[str], work: Path
) -> SentenceTransformer:
    """Quantise by sentence-transformers' own static int8, calibrated on sentences of the texts."""
    from optimum.intel import OVQuantizationConfig  # an extra of its own

    target, samples = work / "openvino", work / "samples"
    file = "openvino/openvino_model_qint8_quantized.xml"
    if (target / file).exists():
        return _open_openvino(target, threads, "f32", file)
    samples.mkdir(exist_ok=True)
    sentences = [text[start:end] for text in texts for start, end in split_sentences(text)]
    lines = [json.dumps({"sentence": sentence}) for sentence in sentences[:_CALIBRATION_SENTENCES]]
    (samples / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    model = _open_openvino(folder, threads, "f32")
    model.save_pretrained(str(target))
    export_static_quantized_openvino_model(
        model,
        OVQuantizationConfig(num_samples=len(lines)),
        str(target),
        dataset_name=str(samples),
        dataset_config_name="default",
        dataset_split="train",
        column_name="sentence",
    )
    return _open_openvino(target, threads, "f32", file)


def _tuned(
    name: str, precision: str, model: SentenceTransformer, texts: Sequence[str]
) -> TimedEncoder:
    chunks = tokenise(model, texts).chunks[:_WARM_UP_CHUNKS]
    _check(model, texts[0], chunks[0], _TOLERANCE if precision == "fp32" else _LOW_TOLERANCE)

    def timed(batch_size: int) -> Callable[[int], float]:
        def run(_: int) -> float:
            started = time.perf_counter()
            encode_chunks(model, chunks, batch_size)
            return time.perf_counter() - started

        return run

    seconds = interleave({str(size): timed(size) for size in BATCH_SIZES}, _WARM_UP_ROUNDS)
    best = min(BATCH_SIZES, key=lambda size: median(seconds[str(size)]))
    return TimedEncoder(
        name=f"sentence-transformers {name}",
        precision=precision,
        batch_size=best,
        tokenise=partial(tokenise, model),
        encode=partial(encode_documents, model, batch_size=best),
    )


def _check(model: SentenceTransformer, text: str, chunk: Sequence[int], tolerance: float) -> None:
    """Check that the shortcut equals `model.encode`, which reads only the first chunk.

    Raises:
        RuntimeError: they differ.
    """
    difference = np.abs(model.encode([text])[0] - encode_chunks(model, [chunk], 1)[0]).max()
    if difference > tolerance:
        raise RuntimeError(f"the vector of a chunk differs from model.encode by {difference:.2g}")
