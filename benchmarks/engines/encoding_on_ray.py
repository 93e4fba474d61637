"""What does `longmatch index --on ray` gain on one machine, and what is left to its driver?

The same documents are indexed into new data directories by one process, by one actor with all
threads, and by two actors that share them, in turns. The clock runs from the first batch to the
published index; Ray and its encoders are started before. The processor time of the driver, which
reads, makes words and signatures, aligns and writes, says how many documents a second one driver
can take however many machines encode.
"""

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import (
    Spread,
    commit,
    corpus_name,
    interleave,
    make_record,
    markdown_table,
    ratios,
    read_documents,
    spread,
    write_record,
)
from encoder.alignment.space import open_space
from encoder.block_selection import open_document_tokenizer
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder, usable_cores
from index.build import BatchEncoder, build_index, encode_here
from index.directory.data_directory import open_data_directory
from index.distributed.cluster import ClusterOptions
from index.distributed.encoder_pool import open_encoder_pool
from index.distributed.encoding_actor import EncoderOrder
from index.progress import SilentProgress

BENCHMARK = "ray"
LOCAL = "one process"
Opening = Callable[[], AbstractContextManager[BatchEncoder]]


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of one run by the clock, and of processor time of this process."""

    seconds: float
    driver_seconds: float


def main(
    corpus: Annotated[
        Path | None, typer.Argument(help="By default Python's documentation.")
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="How many of them.")] = 100,
    rounds: Annotated[int, typer.Option(min=1, help="How often each variant runs.")] = 2,
) -> None:
    """Measure documents a second of one process and of one and two actors, in one run."""
    source, cores = commit(), usable_cores()
    chosen = read_documents(corpus, documents)
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder, "corpus.jsonl")
        records = ({"id": one.id, "text": one.text, "title": one.title} for one in chosen)
        lines.write_text("".join(f"{json.dumps(record)}\n" for record in records))
        variants = {
            name: _runner(Path(folder, str(number)), lines, opening)
            for number, (name, opening) in enumerate(_openings(cores).items())
        }
        measured = interleave(variants, rounds)
    local = [one.seconds for one in measured[LOCAL]]
    results = {
        name: {
            "documents_a_second": asdict(spread([len(chosen) / one.seconds for one in runs])),
            "ratio_to_local": asdict(ratios(local, [one.seconds for one in runs])),
            "driver_ms_a_document": asdict(
                spread([1e3 * one.driver_seconds / len(chosen) for one in runs])
            ),
        }
        for name, runs in measured.items()
    }
    settings = {
        "corpus": corpus_name(corpus),
        "documents": len(chosen),
        "characters": sum(len(one.text) for one in chosen),
        "rounds": rounds,
        "cores": cores,
    }
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    write_record(record)


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    return markdown_table(
        [
            "encoding",
            "documents/s",
            "ratio to one process",
            "processor ms of the driver a document",
        ],
        [
            [
                name,
                Spread(**one["documents_a_second"]),
                Spread(**one["ratio_to_local"]),
                Spread(**one["driver_ms_a_document"]),
            ]
            for name, one in record["results"].items()
        ],
    )


def _openings(cores: int) -> dict[str, Opening]:
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    here = encode_here(open_document_tokenizer(checkpoint), OnnxEncoder(checkpoint))

    def on_ray(actors: int) -> Opening:
        order = EncoderOrder(
            Path("best"), checkpoint.fingerprint, checkpoint.reading_share, None, None, threads=1
        )
        options = ClusterOptions(actors=actors, threads=max(1, cores // actors))
        return lambda: open_encoder_pool(order, None, options)

    return {
        LOCAL: lambda: nullcontext(here),
        "Ray, 1 actor": on_ray(1),
        "Ray, 2 actors": on_ray(2),
    }


def _runner(folder: Path, corpus: Path, opening: Opening) -> Callable[[int], Run]:
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)

    def run(number: int) -> Run:
        directory = open_data_directory(
            folder / str(number),
            fingerprint=checkpoint.fingerprint,
            dimension=checkpoint.dimension,
            alignment=open_space(checkpoint),
        )
        with opening() as encode, closing(directory) as data:
            started, used = time.perf_counter(), time.process_time()
            build_index(corpus, data, encode, SilentProgress())
            return Run(time.perf_counter() - started, time.process_time() - used)

    return run


if __name__ == "__main__":
    typer.run(main)
