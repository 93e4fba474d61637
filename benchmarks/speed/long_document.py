r"""What does one long text cost to encode, in memory and in processor time?

    longmatch lab create-checkpoint encoder/recipes/ernie-doc-small.toml --bert BERT -o DIR \
        --precision int8
    python -m benchmarks.speed.long_document --checkpoint DIR

Each length is measured in a process of its own, on one thread: resident memory before the text is
encoded, and its highest value after. Texts are of `benchmarks.synthetic.articles`.
"""

import multiprocessing
import resource
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import commit, make_record, markdown_table, write_record
from benchmarks.synthetic.articles import article_model
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.golden import read_golden_batch
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer

WORDS = [1_000, 10_000, 100_000]
_KILOBYTE = 1 if sys.platform == "darwin" else 1024  # of `ru_maxrss`


def main(
    words: Annotated[list[int] | None, typer.Option(min=1, help="Of a text; repeatable.")] = None,
    checkpoint: Annotated[Path, typer.Option(help="Another one.")] = DEFAULT_CHECKPOINT,
) -> None:
    """Encode texts of several lengths."""
    source, sizes = commit(), words or WORDS
    context = multiprocessing.get_context("spawn")
    results = {}
    for size in sizes:
        with ProcessPoolExecutor(1, mp_context=context) as process:
            results[str(size)] = process.submit(measure, checkpoint, size).result()
    opened = load_checkpoint(checkpoint)
    settings = {
        "checkpoint": opened.name,
        "precision": OnnxEncoder(opened, threads=1).precision,
        "threads": 1,
    }
    record = make_record("long-document", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(checkpoint: Path, words: int) -> dict[str, float]:
    """Encode a text of so many words, after the golden batch."""
    opened = load_checkpoint(checkpoint)
    encoder = OnnxEncoder(opened, threads=1)
    encoder.encode_blocks(read_golden_batch(opened).blocks[:1])
    document = BlockTokenizer(opened)(_text(words))
    before, processor = _peak(), time.process_time()
    vectors = encoder.encode_blocks(document.blocks)
    encoder.encode_document(document.blocks, vectors)
    return {
        "tokens": sum(map(len, document.blocks)),
        "blocks": len(document.blocks),
        "before_bytes": before,
        "peak_bytes": _peak(),
        "processor_seconds": time.process_time() - processor,
    }


def _text(words: int) -> str:
    model, parts, number = article_model(1, 1, 1), list[str](), 0
    while len(parts) < words:
        parts += model.article(number).document.text.split()
        number += 1
    return ". ".join(" ".join(parts[start : start + 20]) for start in range(0, words, 20))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KILOBYTE


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    settings = record["settings"]
    rows = [
        [
            f"{int(words):,}",
            f"{one['tokens']:,}",
            one["blocks"],
            (one["peak_bytes"] - one["before_bytes"]) / 2**20,
            one["peak_bytes"] / 2**20,
            one["processor_seconds"],
        ]
        for words, one in record["results"].items()
    ]
    header = ["words", "tokens", "blocks", "memory rises by MiB", "to MiB", "CPU seconds"]
    named = f"{settings['checkpoint']}, {settings['precision']}, one thread"
    return f"{named}\n\n{markdown_table(header, rows)}"


if __name__ == "__main__":
    typer.run(main)
