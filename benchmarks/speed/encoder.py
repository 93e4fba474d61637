"""How fast are documents encoded, in which precision, and beside sentence-transformers?

Every contestant reads the same documents whole, on the same number of threads. A comparison is
wrong when thread budgets differ, and they differ unless each library is told in its own way:

* tokenizers spreads a batch over Rayon threads: RAYON_NUM_THREADS, and TOKENIZERS_PARALLELISM,
  which the library may turn off on its own;
* PyTorch: torch.set_num_threads, and one interop thread;
* ONNX Runtime takes every core of the machine, not those of the container, unless the options of
  each session say otherwise: intra_op_num_threads. Longmatch's sessions have one thread each and
  are called from `threads` threads; those of sentence-transformers have `threads` each.

All are set before the first library that reads them works. Thread pools also spin for a moment
after their last call: `interleave` pauses before each turn, or the next contestant would pay.

Tokens are WordPiece tokens of the text, special tokens not counted, the same number for everybody,
so that tokens/s compare although Longmatch reads blocks of 64 and the others chunks of 256.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    Spread,
    commit,
    corpus_name,
    deal,
    interleave,
    make_record,
    markdown_table,
    ratios,
    read_documents,
    write_record,
)
from benchmarks.speed.contestant import Contestant
from encoder.arrays import Float32
from encoder.blocks import SentenceBlocks
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, file_digest, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder, usable_cores
from encoder.tokenizer import BlockTokenizer
from evaluation.judgements import Qrels, read_ids, read_qrels
from evaluation.metrics import evaluate_run, rank_exactly
from index.document import Document

WARM_UP_DOCUMENTS = 10


@dataclass(frozen=True, slots=True)
class Task:
    """The documents that everybody encodes.

    Attributes:
        documents: D documents that Longmatch reads whole.
        tokens: of each.
        hands: their positions, round by round.
    """

    documents: list[Document]
    tokens: list[int]
    hands: list[list[int]]


@dataclass(frozen=True, slots=True)
class Lap:
    """One contestant in one round: seconds of both steps, and vectors Float32[D, dimension]."""

    tokenise_seconds: float
    encode_seconds: float
    vectors: Float32

    @property
    def seconds(self) -> float:
        """Seconds of both steps."""
        return self.tokenise_seconds + self.encode_seconds


def main(
    corpus: Annotated[Path | None, typer.Argument(help="As `longmatch index` takes it.")] = None,
    documents: Annotated[int, typer.Option(min=1, help="How many, drawn from the corpus.")] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="Parts that they are dealt into.")] = 6,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="May be given again; the one that ships if not.")
    ] = None,
    sentence_transformers: Annotated[
        Path | None, typer.Option(help="Folder of a model to compare with.")
    ] = None,
    qrels: Annotated[Path | None, typer.Option(help="Judgements: measures nDCG@10, too.")] = None,
    ids: Annotated[Path | None, typer.Option(help="Only the queries of these ids.")] = None,
) -> None:
    """Measure documents/s and tokens/s, and nDCG@10 where there are judgements."""
    source, threads = commit(), usable_cores()
    set_threads(threads)
    checkpoints = [load_checkpoint(path) for path in checkpoint or [DEFAULT_CHECKPOINT]]
    task = prepare(read_documents(corpus, documents), BlockTokenizer(checkpoints[0]), rounds)
    texts = [document.text for document in task.documents]
    own = open_longmatch(checkpoints, threads)
    rivals = open_rivals(sentence_transformers, threads, texts[:WARM_UP_DOCUMENTS])
    laps = race([*own, *rivals], texts, task.hands)
    reference = fastest(rivals or own[-1:], laps)
    results = summarise([*own, *rivals], laps, task, reference)
    if qrels:
        measure_quality(results, laps, task, read_qrels(qrels), read_ids(ids) if ids else None)
    settings = {
        "corpus": corpus_name(corpus),
        "documents": len(task.documents),
        "tokens": sum(task.tokens),
        "rounds": len(task.hands),
        "threads": threads,
        "checkpoints": {c.name: c.fingerprint[:12] for c in checkpoints},
        "sentence_transformers": _weights(sentence_transformers),
        "reference": reference,
    }
    record = make_record("encoder-quality" if qrels else "encoder", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def set_threads(threads: int) -> None:
    """Give the tokenizers of all contestants the same threads; before any of them works."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder is given; nothing is looked up


def prepare(documents: Sequence[Document], tokenizer: BlockTokenizer, rounds: int) -> Task:
    """Leave out what Longmatch would not read whole, and deal the rest into rounds."""
    receipts = [tokenizer(document.text).receipt for document in documents]
    whole = [number for number, r in enumerate(receipts) if r.tokens_read == r.tokens]
    tokens = [receipts[number].tokens for number in whole]
    return Task([documents[n] for n in whole], tokens, deal(tokens, min(rounds, len(whole))))


def open_longmatch(checkpoints: Sequence[Checkpoint], threads: int) -> list[Contestant]:
    """Open every precision of every checkpoint."""
    contestants: dict[str, Contestant] = {}
    for checkpoint in checkpoints:
        tokenizer = BlockTokenizer(checkpoint)
        for precision in checkpoint.precisions:
            encoder = OnnxEncoder(checkpoint, precision=precision, threads=threads)
            encoder.warm_up()
            name = f"{checkpoint.name} {precision}"
            if name in contestants:
                raise typer.BadParameter(f"{name} is there twice", param_hint="--checkpoint")
            contestants[name] = Contestant(
                name=name,
                precision=precision,
                batch_size=0 if encoder.batch_tokens else 1,
                tokenise=partial(_sentence_blocks, tokenizer),
                encode=partial(_document_vectors, encoder),
            )
    return list(contestants.values())


def open_rivals(folder: Path | None, threads: int, texts: Sequence[str]) -> list[Contestant]:
    """Open a sentence-transformers model in all of its ways; `texts` are to warm up with."""
    if folder is None:
        return []
    from benchmarks.speed.sentence_transformers_chunks import open_chunk_encoders  # needs torch

    return list(open_chunk_encoders(folder, threads, texts))


def race(
    contestants: Sequence[Contestant], texts: Sequence[str], hands: Sequence[Sequence[int]]
) -> dict[str, list[Lap]]:
    """Have everybody encode the documents of each round, in turns."""

    def lap(contestant: Contestant) -> Callable[[int], Lap]:
        def run(number: int) -> Lap:
            some = [texts[position] for position in hands[number]]
            started = time.perf_counter()
            tokens = contestant.tokenise(some)
            tokenised = time.perf_counter()
            vectors = contestant.encode(tokens)
            return Lap(tokenised - started, time.perf_counter() - tokenised, vectors)

        return run

    return interleave({one.name: lap(one) for one in contestants}, len(hands))


def fastest(contestants: Sequence[Contestant], laps: dict[str, list[Lap]]) -> str:
    """Return the name of whoever took the least time."""
    return min((one.name for one in contestants), key=lambda name: _seconds(laps[name]))


def summarise(
    contestants: Sequence[Contestant], laps: dict[str, list[Lap]], task: Task, reference: str
) -> dict[str, Any]:
    """Return the figures of each contestant, also as a ratio to the reference."""
    tokens = [sum(task.tokens[position] for position in hand) for hand in task.hands]
    reference_seconds = [lap.seconds for lap in laps[reference]]
    results: dict[str, Any] = {}
    for one in contestants:
        mine = laps[one.name]
        total = [lap.seconds for lap in mine]
        encoding = [lap.encode_seconds for lap in mine]
        tokenising = [lap.tokenise_seconds for lap in mine]
        figures = {
            "documents_per_second": ratios([len(hand) for hand in task.hands], total),
            "tokens_per_second": ratios(tokens, total),
            "tokens_per_second_encoding": ratios(tokens, encoding),
            "tokens_per_second_tokenising": ratios(tokens, tokenising),
            "times_as_fast": ratios(reference_seconds, total),
        }
        results[one.name] = {
            "precision": one.precision,
            "batch_size": one.batch_size,
            **{name: asdict(figure) for name, figure in figures.items()},
        }
    return results


def measure_quality(
    results: dict[str, Any],
    laps: dict[str, list[Lap]],
    task: Task,
    qrels: Qrels,
    wanted: Sequence[str] | None,
) -> None:
    """Add nDCG@10 to the figures of each contestant.

    Judgements of documents that do not take part are left out, and so are queries that have no
    other: a perfect ranking of the documents that do scores 1.
    """
    ids = [task.documents[position].id for hand in task.hands for position in hand]
    present = set(ids)
    judged = {
        query: {name: relevance for name, relevance in rows.items() if name in present}
        for query, rows in qrels.items()
        if query in present and (wanted is None or query in wanted)
    }
    judged = {query: rows for query, rows in judged.items() if any(rows.values())}
    rows = [row for row, name in enumerate(ids) if name in judged]
    queries = [ids[row] for row in rows]
    for name, some in laps.items():
        vectors = np.concatenate([lap.vectors for lap in some])
        run = rank_exactly(ids, vectors, queries, vectors[rows])
        results[name]["queries"] = len(queries)
        results[name]["ndcg_at_10"] = evaluate_run(run, ids, judged)["nDCG@10"]


def table(record: dict[str, Any]) -> str:
    """Lay out the record of a run."""
    settings, results = record["settings"], record["results"]
    quality = all("ndcg_at_10" in one for one in results.values())
    header = ["", "batch", "documents/s", "tokens/s", "encoding", "tokenising", "times as fast"]
    rows = [
        [
            name,
            one["batch_size"],
            Spread(**one["documents_per_second"]),
            Spread(**one["tokens_per_second"]),
            one["tokens_per_second_encoding"]["median"],
            one["tokens_per_second_tokenising"]["median"],
            Spread(**one["times_as_fast"]),
            *([f"{one['ndcg_at_10']:.4f}"] if quality else []),
        ]
        for name, one in results.items()
    ]
    if quality:
        header.append("nDCG@10")
    return (
        f"{settings['documents']} documents of {settings['corpus']}, {settings['tokens']:,} "
        f"tokens, {settings['threads']} threads; median (lowest-highest) of {settings['rounds']} "
        f"rounds; encoding and tokenising: tokens/s of each alone; times as fast as "
        f"{settings['reference']}\n\n{markdown_table(header, rows)}"
    )


def _sentence_blocks(tokenizer: BlockTokenizer, texts: Sequence[str]) -> list[SentenceBlocks]:
    return [tokenizer(text) for text in texts]


def _document_vectors(encoder: OnnxEncoder, documents: Sequence[SentenceBlocks]) -> Float32:
    return encoder.encode(documents).document_vectors


def _seconds(laps: Sequence[Lap]) -> float:
    return sum(lap.seconds for lap in laps)


def _weights(folder: Path | None) -> str:
    """Say which weights a folder holds, without saying where it lies."""
    if folder is None:
        return ""
    return file_digest(folder / "model.safetensors")[:12]


if __name__ == "__main__":
    typer.run(main)
