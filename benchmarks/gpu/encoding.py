"""How many documents a second does a GPU encode, what share of its peak is that, and is it right?

    python -m benchmarks.gpu.encoding --checkpoint FOLDER --checkpoint FOLDER2 --device cuda \
        --work FOLDER --minutes 9

measures what is left within so many minutes, then stops with status 75 (EX_TEMPFAIL); the same
command goes on, on another machine too if the work folder is taken along. With `--device cpu` all
of it runs on a CPU, on few documents, as a rehearsal: its record is not written.

Documents are full sentence blocks of the tokens of a corpus, as many tokens as `--tokens`. Those of
"from text" are its documents as they are, tokenising included.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    commit,
    corpus_name,
    make_record,
    read_documents,
    spread,
    write_record,
)
from benchmarks.gpu.encoding_table import BENCHMARK, table
from benchmarks.gpu.flops import document_flops
from benchmarks.gpu.hardware import describe_gpu, peak_flops
from benchmarks.gpu.parts import Part, run_parts
from encoder.arrays import Float32
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import Receipt, SentenceBlocks
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.device.bound_graph import BoundGraph
from encoder.device.packing import SPECIAL_TOKENS
from encoder.device.providers import device_of
from encoder.onnx_encoder import OnnxEncoder
from encoder.onnx_session import open_graphs

BATCH_TOKENS = [16_384, 65_536, 262_144, 524_288]
_CALLS = 8  # of a round, at least
_PARITY_NEIGHBOURS = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        device: an execution provider.
        precision: of the graphs; None for the best one for the device.
        tokens: of a document, special tokens included.
        documents: of a round, at least.
        rounds: of each measurement.
        texts: of documents with text.
        peak: operations a second of the device; None if not known.
    """

    device: str
    precision: str | None
    tokens: int
    documents: int
    rounds: int
    texts: Sequence[str]
    peak: float | None


def main(
    checkpoint: Annotated[list[Path], typer.Option(help="A checkpoint directory; repeatable.")],
    work: Annotated[Path, typer.Option(help="What is kept between the parts.")],
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    precision: Annotated[str | None, typer.Option(help="Of the graphs.")] = None,
    batch_tokens: Annotated[
        list[int] | None, typer.Option(min=32, help="Of a packed call; repeatable.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=64, help="Of a document.")] = 2_048,
    documents: Annotated[int, typer.Option(min=1, help="Of a round, at least.")] = 4_096,
    rounds: Annotated[int, typer.Option(min=1)] = 5,
    corpus: Annotated[
        Path | None, typer.Option(help="With text; else Python's documentation.")
    ] = None,
    texts: Annotated[int, typer.Option(min=2, help="Documents of the corpus.")] = 500,
    peak_tflops: Annotated[
        float | None, typer.Option(help="Of the device in fp16, if it is not known.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.0, help="Of this run.")] = 9.0,
) -> None:
    """Measure encoding on a GPU, or go on with it."""
    source, gpu = commit(), describe_gpu()
    peak = 1e12 * peak_tflops if peak_tflops else peak_flops(gpu.get("name", ""))
    read = [document.text for document in read_documents(corpus, texts)]
    plan = Plan(device, precision, tokens, documents, rounds, read, peak, work / "engines")
    sizes = batch_tokens or BATCH_TOKENS
    opened = {one.name: one for one in map(load_checkpoint, checkpoint)}
    parts = [part for one in opened.values() for part in parts_of(one, plan, sizes)]
    results = run_parts(parts, work, minutes)
    settings = {
        "device": device,
        "gpu": gpu,
        "peak_tflops": None if peak is None else peak / 1e12,
        "tokens": tokens,
        "documents": documents,
        "rounds": rounds,
        "corpus": corpus_name(corpus),
        "texts": len(read),
        "batch_tokens": sizes,
        "checkpoints": {name: one.fingerprint[:12] for name, one in opened.items()},
    }
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    if device == "cpu":
        typer.echo("a rehearsal: no record is written")
    else:
        typer.echo(write_record(record))


def parts_of(checkpoint: Checkpoint, plan: Plan, sizes: Sequence[int]) -> Iterator[Part]:
    """Yield what is measured of one checkpoint."""

    def best(results: dict[str, Any]) -> int:
        speeds = {size: results[f"{name}-throughput-{size}"] for size in sizes}
        return max(sizes, key=lambda size: float(speeds[size]["documents_per_second"]["median"]))

    name = checkpoint.name
    for size in sizes:
        yield Part(
            f"{name}-throughput-{size}",
            lambda _, size=size: measure_throughput(checkpoint, plan, size),
        )
    at_best: dict[str, Callable[[Checkpoint, Plan, int], Any]] = {
        "steps": measure_steps,
        "text": measure_from_text,
        "parity": measure_parity,
    }
    for kind, measure in at_best.items():

        def run(results: dict[str, Any], measure: Any = measure) -> Any:
            return measure(checkpoint, plan, best(results))

        yield Part(f"{name}-{kind}", run)


def open_encoder(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> OnnxEncoder:
    """Open an encoder on the device, which must be that one."""
    encoder = OnnxEncoder(
        checkpoint,
        precision=plan.precision,
        providers=[plan.device],
        batch_tokens=batch_tokens,
    )
    encoder.warm_up()
    return encoder


def full_documents(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> list[SentenceBlocks]:
    """Return documents of full sentence blocks, enough for some calls of so many tokens."""
    blocks = min(plan.tokens // checkpoint.block_length, checkpoint.max_blocks)
    length = checkpoint.block_length - SPECIAL_TOKENS
    tokenizer = open_document_tokenizer(checkpoint)
    read = [token for text in plan.texts for block in tokenizer(text).blocks for token in block]
    size = blocks * length
    tokens = read * -(-size // len(read))  # a small corpus, again and again
    receipt = Receipt(size, size, blocks, 0, size)
    distinct = [
        SentenceBlocks(
            tuple(tokens[at : at + length] for at in range(start, start + size, length)),
            ((0, 0),) * blocks,
            receipt,
        )
        for start in range(0, len(tokens) - size + 1, size)
    ]
    count = max(plan.documents, -(-_CALLS * batch_tokens // plan.tokens))
    return [distinct[number % len(distinct)] for number in range(count)]


def measure_throughput(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> dict[str, Any]:
    """Measure documents and tokens a second, and the share of the peak."""
    encoder = open_encoder(checkpoint, plan, batch_tokens)
    documents = full_documents(checkpoint, plan, batch_tokens)
    encoder.encode(documents)  # all shapes have been seen
    seconds = [_seconds(partial(encoder.encode, documents)) for _ in range(plan.rounds)]
    # Without the words of a document, which a CPU counts.
    of_blocks = [
        _seconds(partial(encoder.encode_block_vectors, documents)) for _ in range(plan.rounds)
    ]
    blocks = len(documents[0].blocks)
    tokens = blocks * checkpoint.block_length
    operations = document_flops(checkpoint, [checkpoint.block_length] * blocks)
    speeds = [len(documents) / one for one in seconds]
    median = spread(speeds).median
    return {
        "documents": len(documents),
        "tokens_of_a_document": tokens,
        "precision": encoder.precision,
        "provider": encoder.provider,
        "documents_per_second": _summary(speeds),
        "sentence_level_per_second": _summary([len(documents) / one for one in of_blocks]),
        "tokens_per_second": tokens * median,
        "gflop_of_a_document": operations / 1e9,
        "tflop_per_second": operations * median / 1e12,
        "share_of_peak": None if plan.peak is None else operations * median / plan.peak,
        "most_documents_per_second": None if plan.peak is None else plan.peak / operations,
    }


def measure_steps(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> dict[str, Any]:
    """Measure where the time goes, one step after the other: seconds for 1,000 documents."""
    encoder = open_encoder(checkpoint, plan, batch_tokens)
    graphs = open_graphs(
        checkpoint,
        plan.precision,
        [plan.device],
        batch_tokens=batch_tokens,
    )
    bound = BoundGraph(graphs.block, checkpoint.block_dimension, device_of(graphs.provider))
    documents = full_documents(checkpoint, plan, batch_tokens)
    blocks = [block for document in documents for block in document.blocks]
    vectors = np.empty((len(blocks), checkpoint.block_dimension), dtype=np.float32)
    steps: dict[str, float] = {}
    for _ in range(2):  # the first time all shapes are new
        clock = _Clock()
        for rows in graphs.packing.calls(blocks):
            ids, mask = graphs.packing.pad([blocks[row] for row in rows])
            clock.passed("packing")
            inputs = {"input_ids": ids, "attention_mask": mask}
            bound.run(inputs, vectors, rows, clock.passed)
        steps = clock.seconds
    split = np.split(vectors, len(documents))
    texts = [document.blocks for document in documents]
    steps["terms"] = _seconds(lambda: [encoder.term_features(one) for one in texts])
    both = _seconds(lambda: encoder.encode_documents(texts, split))
    steps["document level"] = max(0.0, both - steps["terms"])
    tokenizer = open_document_tokenizer(checkpoint)
    seconds = _seconds(lambda: [tokenizer(text) for text in plan.texts])
    read = sum(tokenizer(text).receipt.tokens_read for text in plan.texts)
    steps["tokenising"] = seconds / read * plan.tokens * len(documents)
    scale = 1_000 / len(documents)
    return {
        "batch_tokens": batch_tokens,
        "seconds": {step: scale * value for step, value in steps.items()},
    }


def measure_from_text(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> dict[str, Any]:
    """Measure documents of a corpus from text to vector, tokenised by one thread."""
    encoder = open_encoder(checkpoint, plan, batch_tokens)
    tokenizer = open_document_tokenizer(checkpoint)
    documents = [tokenizer(text) for text in plan.texts]
    encoder.encode(documents)
    tokens = sum(document.receipt.tokens_encoded for document in documents)
    encoding, both = [], []
    for _ in range(plan.rounds):
        encoding.append(tokens / _seconds(partial(encoder.encode, documents)))
        both.append(
            tokens / _seconds(lambda: encoder.encode([tokenizer(text) for text in plan.texts]))
        )
    return {
        "batch_tokens": batch_tokens,
        "documents": len(documents),
        "tokens": tokens,
        "encoding_tokens_per_second": _summary(encoding),
        "tokens_per_second": _summary(both),
        "documents_per_second": spread(both).median * len(documents) / tokens,
    }


def measure_parity(checkpoint: Checkpoint, plan: Plan, batch_tokens: int) -> dict[str, Any]:
    """Compare the vectors of the device with those of the same graphs, block by block, on a CPU."""
    encoder = open_encoder(checkpoint, plan, batch_tokens)
    tokenizer = open_document_tokenizer(checkpoint)
    documents = [tokenizer(text) for text in plan.texts]
    found = encoder.encode(documents)
    exact = OnnxEncoder(checkpoint, precision=encoder.precision, providers=["cpu"])
    expected = exact.encode(documents)
    blocks = np.concatenate(found.block_vectors), np.concatenate(expected.block_vectors)
    near = [
        _neighbours(vectors.document_vectors, _PARITY_NEIGHBOURS) for vectors in (found, expected)
    ]
    same = [len({*a} & {*b}) / len(b) for a, b in zip(*near, strict=True)]
    return {
        "batch_tokens": batch_tokens,
        "documents": len(documents),
        "precision": encoder.precision,
        "block_difference": float(np.abs(blocks[0] - blocks[1]).max()),
        "block_cosine": _least_cosine(*blocks),
        "document_difference": float(
            np.abs(found.document_vectors - expected.document_vectors).max()
        ),
        "document_cosine": _least_cosine(found.document_vectors, expected.document_vectors),
        "same_nearest": float(np.mean([a[0] == b[0] for a, b in zip(*near, strict=True)])),
        "same_neighbours": float(np.mean(same)),
    }


class _Clock:
    """Adds up the time that each step takes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def passed(self, step: str) -> None:
        """Count the time since the last step as this one's."""
        now = time.perf_counter()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now


def _least_cosine(these: Float32, those: Float32) -> float:
    norms = np.linalg.norm(these, axis=1) * np.linalg.norm(those, axis=1)
    return float(((these * those).sum(axis=1) / norms).min())


def _neighbours(vectors: Float32, k: int) -> list[list[int]]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest: list[list[int]] = np.argsort(-cosines, axis=1, kind="stable")[:, :k].tolist()
    return nearest


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _summary(values: Sequence[float]) -> dict[str, float]:
    found = spread(values)
    return {"median": found.median, "low": found.low, "high": found.high}


if __name__ == "__main__":
    typer.run(main)
