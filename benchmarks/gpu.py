"""What does a GPU gain: encoding in each precision, training an index, exact search, all pairs?

    python -m benchmarks.gpu --checkpoint FOLDER

One call measures everything within some minutes, on the GPU and on the CPU. With
`--device cpu` all of it runs on a CPU, on few documents, as a rehearsal: no record is written.

Documents are full sentence blocks of the tokens of a corpus: no padding, and no text to tokenise.
Parity is against the same graphs on the CPU, one block a call. Vectors of the index are those of
`benchmarks.speed.index`; recall@10 is that of the trained index against exact search.
"""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer

from benchmarks.common import (
    Spread,
    commit,
    corpus_name,
    make_record,
    markdown_table,
    read_documents,
    spread,
    write_record,
)
from benchmarks.speed.index import DIMENSION, sample_vectors
from encoder.arrays import Float32
from encoder.block_selection import open_document_tokenizer
from encoder.blocks import Receipt, SentenceBlocks
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder, usable_cores
from index.search.pairs import TILE
from index.vectors.faiss import exact, gpu
from index.vectors.faiss.faiss_index import train_faiss_index
from index.vectors.lists import SAMPLE_PER_LIST, choose_nlist
from index.vectors.recall import share_found

BENCHMARK = "gpu"
SIZES = [100_000, 1_000_000]
BATCH_TOKENS = [16_384, 65_536, 262_144]
K = 10
ADDED_TOGETHER = 10_000
QUERIES, TILES = 1_000, 4


def main(
    checkpoint: Annotated[
        list[Path], typer.Option(help="A checkpoint with fp16 graphs; repeatable.")
    ] = [DEFAULT_CHECKPOINT],  # noqa: B006
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    batch_tokens: Annotated[
        list[int] | None, typer.Option(min=32, help="Of a packed call; repeatable.")
    ] = None,
    tokens: Annotated[int, typer.Option(min=64, help="Of a document.")] = 2_048,
    documents: Annotated[int, typer.Option(min=1, help="Of a round.")] = 4_096,
    corpus: Annotated[
        Path | None, typer.Option(help="With text; else Python's documentation.")
    ] = None,
    texts: Annotated[int, typer.Option(min=2, help="Documents of the corpus.")] = 200,
    size: Annotated[list[int] | None, typer.Option(min=5_000, help="Vectors; repeatable.")] = None,
    rounds: Annotated[int, typer.Option(min=1)] = 3,
) -> None:
    """Measure encoding and the index on a GPU."""
    source = commit()
    if device != "cpu" and not gpu.gpu_is_used():
        raise typer.BadParameter("FAISS has no GPU here", param_hint="--device")
    read = [document.text for document in read_documents(corpus, texts)]
    sizes, batches = size or SIZES, batch_tokens or BATCH_TOKENS
    results: dict[str, Any] = {"encoding": {}, "index": {}}
    for opened in map(load_checkpoint, checkpoint):
        for precision in opened.precisions:
            results["encoding"][f"{opened.name} {precision}"] = measure_encoding(
                opened, precision, device, read, (tokens, documents, rounds), batches
            )
    for count in sizes:
        for place in ["cpu"] if device == "cpu" else ["gpu", "cpu"]:
            with patch.object(gpu, "gpu_is_used", lambda: place == "gpu"):  # noqa: B023
                results["index"][f"{count:,}, {place}"] = measure_index(count, rounds)
    settings = {
        **{"device": device, "gpu": describe_gpu(), "threads": usable_cores()},
        **{"tokens": tokens, "documents": documents, "corpus": corpus_name(corpus)},
        **{"texts": len(read), "dimension": DIMENSION, "rounds": rounds, "queries": QUERIES},
    }
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    typer.echo("a rehearsal: no record is written" if device == "cpu" else write_record(record))


def measure_encoding(
    checkpoint: Checkpoint,
    precision: str,
    device: str,
    texts: Sequence[str],
    task: tuple[int, int, int],
    batches: Sequence[int],
) -> dict[str, Any]:
    """Measure documents a second by tokens of a call, from text, and parity with the CPU.

    Args:
        checkpoint: that encodes.
        precision: of its graphs.
        device: an execution provider.
        texts: of the documents with text.
        task: tokens of a document, documents of a round, rounds.
        batches: tokens of a packed call.
    """
    tokens, count, rounds = task
    documents = full_documents(checkpoint, texts, tokens, count)
    speeds: dict[str, dict[str, float]] = {}
    for size in batches:
        encoder = _open(checkpoint, precision, device, size)
        encoder.encode(documents)  # all shapes have been seen
        seconds = [_seconds(partial(encoder.encode, documents)) for _ in range(rounds)]
        speeds[str(size)] = asdict(spread([count / value for value in seconds]))
    best = max(batches, key=lambda size: speeds[str(size)]["median"])
    encoder = _open(checkpoint, precision, device, best)
    tokenizer = open_document_tokenizer(checkpoint)
    read = [tokenizer(text) for text in texts]
    encoder.encode(read)
    from_text = _seconds(lambda: encoder.encode([tokenizer(text) for text in texts]))
    return {
        "documents_per_second": speeds,
        "best_batch_tokens": best,
        "text_tokens_per_second": sum(document.receipt.tokens_read for document in read)
        / from_text,
        **_parity(encoder, OnnxEncoder(checkpoint, precision=precision, providers=["cpu"]), read),
    }


def _open(checkpoint: Checkpoint, precision: str, device: str, batch_tokens: int) -> OnnxEncoder:
    encoder = OnnxEncoder(
        checkpoint, precision=precision, providers=[device], batch_tokens=batch_tokens
    )
    encoder.warm_up()
    return encoder


def full_documents(
    checkpoint: Checkpoint, texts: Sequence[str], tokens: int, count: int
) -> list[SentenceBlocks]:
    """Return documents of full sentence blocks of the tokens of texts."""
    blocks = min(tokens // checkpoint.block_length, checkpoint.max_blocks)
    length = checkpoint.block_capacity
    tokenizer = open_document_tokenizer(checkpoint)
    read = [token for text in texts for block in tokenizer(text).blocks for token in block]
    size = blocks * length
    read *= -(-size // len(read))  # a small corpus, again and again
    receipt = Receipt(size, size, blocks, 0, size)
    distinct = [
        SentenceBlocks(
            tuple(tuple(read[at : at + length]) for at in range(start, start + size, length)),
            ((0, 0),) * blocks,
            receipt,
        )
        for start in range(0, len(read) - size + 1, size)
    ]
    return [distinct[number % len(distinct)] for number in range(count)]


def _parity(
    encoder: OnnxEncoder, reference: OnnxEncoder, documents: Sequence[SentenceBlocks]
) -> dict[str, float]:
    """Compare the vectors of the device with those of the same graphs on a CPU."""
    found, expected = encoder.encode(documents), reference.encode(documents)
    blocks = np.concatenate(found.block_vectors) - np.concatenate(expected.block_vectors)
    near = [_neighbours(vectors.document_vectors) for vectors in (found, expected)]
    cosines = (found.document_vectors * expected.document_vectors).sum(axis=1)  # unit norm
    return {
        "block_difference": float(np.abs(blocks).max()),
        "document_cosine": float(cosines.min()),
        "same_neighbours": float(
            np.mean([len({*a} & {*b}) / len(b) for a, b in zip(*near, strict=True)])
        ),
    }


def _neighbours(vectors: Float32) -> list[list[int]]:
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    nearest: list[list[int]] = np.argsort(-cosines, axis=1, kind="stable")[:, :K].tolist()
    return nearest


def measure_index(size: int, rounds: int) -> dict[str, float]:
    """Measure one size on the device that is allowed; times are seconds, medians of the rounds."""
    vectors, queries = sample_vectors(size)
    queries = np.tile(queries, (-(-QUERIES // len(queries)), 1))[:QUERIES]
    nlist = choose_nlist(size)
    sample = vectors[np.random.default_rng(1).permutation(size)[: nlist * SAMPLE_PER_LIST]]
    trained, filled = [], []
    for _ in range(rounds):
        started = time.perf_counter()
        index = train_faiss_index(sample, nlist, "int8")
        trained.append(time.perf_counter() - started)
        started = time.perf_counter()
        for first in range(0, size, ADDED_TOGETHER):
            rows = np.arange(first, min(first + ADDED_TOGETHER, size))
            index.change(rows, vectors[rows])
        filled.append(time.perf_counter() - started)
    searched = [_seconds(lambda: exact.nearest(queries, vectors, K)) for _ in range(rounds)]
    side = vectors[: min(TILE, size)]
    tiles = [_seconds(lambda: exact.products(side, side)) for _ in range(TILES * rounds)]
    scores, _ = exact.nearest(queries, vectors, K)
    found = index.search(queries, K).ids
    return {
        "nlist": nlist,
        "training": spread(trained).median,
        "filling": spread(filled).median,
        "exact_search": spread(searched).median,
        "tile": spread(tiles).median,
        "recall": share_found(np.einsum("qd,qkd->qk", queries, vectors[found]), scores),
    }


def describe_gpu() -> str:
    """Return name, driver and memory of the first GPU; empty where there is none."""
    query = "--query-gpu=name,driver_version,memory.total"
    command = ["nvidia-smi", "--id=0", query, "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.strip()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(record: Mapping[str, Any]) -> str:
    """Format a record as Markdown."""
    settings, results = record["settings"], record["results"]
    encoding = [
        [
            name,
            f"{int(size):,}",
            str(Spread(**speed)),
            settings["tokens"] * speed["median"],
            figures["text_tokens_per_second"] if int(size) == figures["best_batch_tokens"] else "",
            f"{figures['block_difference']:.2g}",
            f"{figures['document_cosine']:.6f}",
            f"{figures['same_neighbours']:.3f}",
        ]
        for name, figures in results["encoding"].items()
        for size, speed in figures["documents_per_second"].items()
    ]
    columns = ["encoding", "tokens a call", "documents/s", "tokens/s", "from text, tokens/s"]
    columns += ["largest difference of block vectors", "least cosine", "same 10 nearest"]
    index = [
        [
            name,
            f"{figures['nlist']:,}",
            *(figures[step] for step in ("training", "filling", "exact_search")),
            1e3 * figures["tile"],
            f"{figures['recall']:.3f}",
        ]
        for name, figures in results["index"].items()
    ]
    header = ["vectors", "lists", "training s", "filling s"]
    header += [f"{settings['queries']:,} exact searches s", "tile of all pairs ms"]
    header += ["recall@10"]
    first = f"{settings['device']}, {settings['gpu'] or 'no GPU'}; "
    first += f"{settings['tokens']:,} tokens a document, {settings['dimension']:,} dimensions"
    return f"{first}\n\n{markdown_table(columns, encoding)}\n\n{markdown_table(header, index)}"


if __name__ == "__main__":
    typer.run(main)
