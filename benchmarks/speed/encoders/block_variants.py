"""The sentence level of a checkpoint by other engines, precisions and calls: what could ship, too?

* OpenVINO in bf16 (where the processor has it) and in static int8 by NNCF (SmoothQuant,
  calibrated);
* ONNX Runtime in static int8: a scale for each channel of a weight, and one for each activation
  (it has none for each token);
* the int8 graph that ships with two and four blocks of similar length a call, which makes the
  vector of a block depend on its neighbours, as they share the scale of activations;
* no Transformer: the mean of one vector for each token, which is that of a block of this token
  alone, weighted by the logarithm of its place in the vocabulary (as Model2Vec does).

Document level and words are those of the checkpoint. It needs graphs in fp32.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from benchmarks.common import cpu_flags
from benchmarks.speed.encoders.timed_encoder import TimedEncoder
from encoder.arrays import Float32, Int64
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import BLOCK_GRAPH, Checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer

_CALIBRATION_BLOCKS = 200
_BLOCKS_A_CALL = (2, 4)

EncodeCall = Callable[[Sequence[Sequence[int]]], Float32]  # N blocks -> [N, H]


def open_variants(
    checkpoint: Checkpoint, threads: int, texts: Sequence[str], work: Path
) -> Iterator[TimedEncoder]:
    """Open the sentence level in every way that can be had here.

    Args:
        checkpoint: with graphs in fp32 and int8.
        threads: that call at the same time, each engine computing with one.
        texts: that will be read; static precisions are calibrated on the first of them.
        work: keeps the graphs that are made.
    """
    tokenizer = BlockTokenizer(checkpoint)
    read = [block for text in texts for block in tokenizer(text).blocks]
    blocks = read[:_CALIBRATION_BLOCKS]
    exact = OnnxEncoder(checkpoint, precision="fp32", threads=threads)
    shipped = OnnxEncoder(checkpoint, precision="int8", threads=threads)

    def timed(name: str, precision: str, size: int, encode: EncodeCall) -> TimedEncoder:
        return TimedEncoder(
            name=f"{checkpoint.name} {name}",
            precision=precision,
            batch_size=size,
            tokenise=lambda some: [tokenizer(text) for text in some],
            encode=partial(_document_vectors, exact, encode, size),
        )

    inputs = partial(_inputs, checkpoint)
    if find_spec("openvino") and find_spec("nncf"):
        for precision, run in _openvino(checkpoint, threads, [inputs([b]) for b in blocks], work):
            yield timed(f"OpenVINO {precision}", precision, 1, lambda b, run=run: run(inputs(b)))
    static = _static_int8(checkpoint, [inputs([block]) for block in blocks], work)
    yield timed("int8 static", "int8", 1, lambda b: static.run(None, inputs(b))[0])
    graph = _session(checkpoint.directory / "int8" / BLOCK_GRAPH)
    for size in _BLOCKS_A_CALL:
        name = f"int8, {size} blocks a call"
        yield timed(name, "int8", size, lambda b: graph.run(None, inputs(b))[0])
    yield timed("token vectors", "fp32", 1, _token_vectors(shipped, read))


def _document_vectors(
    encoder: OnnxEncoder, encode: EncodeCall, size: int, documents: Sequence[SentenceBlocks]
) -> Float32:
    flat = [block for document in documents for block in document.blocks]
    order = (
        sorted(range(len(flat)), key=lambda row: len(flat[row])) if size > 1 else range(len(flat))
    )
    calls = [order[start : start + size] for start in range(0, len(flat), size)]
    vectors = np.empty((len(flat), encoder.checkpoint.block_dimension), np.float32)
    with ThreadPoolExecutor(encoder.threads) as pool:
        encoded = pool.map(lambda rows: encode([flat[row] for row in rows]), calls)
        for rows, found in zip(calls, encoded, strict=True):
            vectors[list(rows)] = found
        ends = np.cumsum([len(document.blocks) for document in documents])[:-1]
        parts = np.split(vectors, ends)
        whole = pool.map(encoder.encode_document, [d.blocks for d in documents], parts)
        return np.array(list(whole))


def _inputs(checkpoint: Checkpoint, blocks: Sequence[Sequence[int]]) -> dict[str, Int64]:
    length = max(map(len, blocks)) + 2
    ids = np.full((len(blocks), length), checkpoint.padding_token, np.int64)
    mask = np.zeros_like(ids)
    for row, block in enumerate(blocks):
        ids[row, : len(block) + 2] = [checkpoint.start_token, *block, checkpoint.end_token]
        mask[row, : len(block) + 2] = 1
    return {"input_ids": ids, "attention_mask": mask}


def _session(graph: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    return ort.InferenceSession(
        graph,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],  # as in encoder/onnx_session.py
    )


def _openvino(
    checkpoint: Checkpoint, threads: int, samples: Sequence[dict[str, Int64]], work: Path
) -> Iterator[tuple[str, Callable[[dict[str, Int64]], Float32]]]:
    import nncf
    import openvino

    core = openvino.Core()
    model = core.read_model(checkpoint.directory / "fp32" / BLOCK_GRAPH)
    made = work / f"{checkpoint.name}-openvino-int8.xml"
    if not made.exists():
        data = nncf.Dataset(samples)
        small = nncf.quantize(
            model, data, subset_size=len(samples), model_type=nncf.ModelType.TRANSFORMER
        )
        openvino.save_model(small, made)
    if "avx512_bf16" in cpu_flags():
        yield "bf16", _requests(core, model, "bf16", threads)
    yield "int8", _requests(core, core.read_model(made), "f32", threads)


def _requests(
    core: Any, model: Any, precision: str, threads: int
) -> Callable[[dict[str, Int64]], Float32]:
    """Return a call with a stream of one thread for each thread that calls."""
    compiled = core.compile_model(
        model,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
        },
    )
    mine = threading.local()

    def run(inputs: dict[str, Int64]) -> Float32:
        if not hasattr(mine, "request"):
            mine.request = compiled.create_infer_request()
        mine.request.infer(inputs)
        vectors: Float32 = mine.request.get_output_tensor(0).data.copy()
        return vectors

    return run


def _static_int8(
    checkpoint: Checkpoint, samples: Sequence[dict[str, Int64]], work: Path
) -> ort.InferenceSession:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Samples(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(samples)

        def get_next(self) -> dict[str, Int64] | None:
            return next(self._left, None)

    made = work / f"{checkpoint.name}-static-int8.onnx"
    if not made.exists():
        quantize_static(
            checkpoint.directory / "fp32" / BLOCK_GRAPH,
            made,
            Samples(),
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gemm"],
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return _session(made)


def _token_vectors(encoder: OnnxEncoder, read: Sequence[Sequence[int]]) -> EncodeCall:
    """Return the mean of token vectors, weighted by the logarithm of their place (Zipf's law)."""
    tokens = np.unique(np.concatenate([np.asarray(block) for block in read]))
    with ThreadPoolExecutor(encoder.threads) as pool:
        rows = list(pool.map(lambda token: encoder.encode_blocks([[token]])[0], tokens.tolist()))
    table = np.zeros((int(tokens.max()) + 1, encoder.checkpoint.block_dimension), np.float32)
    table[tokens] = np.array(rows) - np.mean(rows, axis=0)
    table[tokens] *= np.log(2 + tokens)[:, None]

    def encode(blocks: Sequence[Sequence[int]]) -> Float32:
        sums = np.array([table[list(block)].sum(0) for block in blocks])
        vectors: Float32 = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return vectors

    return encode
