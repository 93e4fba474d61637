"""How fast are documents encoded, in which precision, compared with other libraries?

Every encoder reads the same documents in full, on the same number of threads. A comparison is
wrong when thread budgets differ, and they differ unless each library is configured separately:

* tokenizers spreads a batch over Rayon threads: RAYON_NUM_THREADS, and TOKENIZERS_PARALLELISM,
  which the library may turn off on its own;
* PyTorch: torch.set_num_threads, and one interop thread;
* ONNX Runtime takes every core of the machine, not those of the container, unless the options of
  each session say otherwise: intra_op_num_threads. Longmatch's sessions have one thread each and
  are called from `threads` threads; those of sentence-transformers have `threads` each.

All of them are set before the first library reads them. Thread pools also spin for a moment after
their last call, so `interleave` pauses before each turn; otherwise the next would be slowed.

Tokens are WordPiece tokens of the text without special tokens, the same number for every encoder.
Tokens/s are therefore comparable although Longmatch reads blocks of 64 tokens and the others chunks
of 256.
"""

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import (
    Spread,
    commit,
    corpus_name,
    interleave,
    markdown_table,
    publish,
    ratios,
    read_documents,
    split_evenly,
)
from benchmarks.speed.encoders.peer_process import open_peer
from benchmarks.speed.encoders.timed_encoder import TimedEncoder, open_longmatch
from encoder.checkpoint import (
    DEFAULT_CHECKPOINT,
    WHOLE,
    file_digest,
    find_checkpoint,
    load_checkpoint,
)
from encoder.onnx_encoder import usable_cores
from encoder.tokenizer import BlockTokenizer
from index.document import Document

WARM_UP_DOCUMENTS = 10


@dataclass(frozen=True, slots=True)
class Task:
    """The documents that every encoder reads.

    Attributes:
        documents: D documents that Longmatch reads in full.
        tokens: number of tokens of each document.
        rounds: positions of the documents of each round.
    """

    documents: list[Document]
    tokens: list[int]
    rounds: list[list[int]]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """One encoder in one round: seconds of both steps."""

    tokenise_seconds: float
    encode_seconds: float

    @property
    def seconds(self) -> float:
        """Seconds of both steps."""
        return self.tokenise_seconds + self.encode_seconds


def main(
    corpus: Annotated[
        Path | None, typer.Argument(help="A corpus as `longmatch index` reads it.")
    ] = None,
    documents: Annotated[
        int, typer.Option(min=1, help="Number of documents, sampled from the corpus.")
    ] = 60,
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds they are split into.")] = 6,
    checkpoint: Annotated[
        list[Path] | None, typer.Option(help="May be repeated; the shipped one by default.")
    ] = None,
    reading_share: Annotated[
        list[float] | None,
        typer.Option(help="Share of the blocks that Longmatch encodes; may be repeated; 1."),
    ] = None,
    sentence_transformers: Annotated[
        Path | None, typer.Option(help="Folder of a model to compare with.")
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="fastembed=PYTHON or infinity=PYTHON; reads the same model."),
    ] = None,
    work: Annotated[
        Path | None, typer.Option(help="Folder that keeps exported models for the next run.")
    ] = None,
) -> None:
    """Measure documents/s and tokens/s."""
    source, threads = commit(), usable_cores()
    set_threads(threads)
    named = map(find_checkpoint, checkpoint or [DEFAULT_CHECKPOINT])
    checkpoints = [load_checkpoint(path) for path in named]
    task = prepare(read_documents(corpus, documents), BlockTokenizer(checkpoints[0]), rounds)
    texts = [document.text for document in task.documents]
    ours = open_longmatch(checkpoints, threads, reading_share or [WHOLE])
    warm_up = texts[:WARM_UP_DOCUMENTS]
    with ExitStack() as opened:
        models_in = work or Path(opened.enter_context(tempfile.TemporaryDirectory()))
        others = open_sentence_transformers(sentence_transformers, threads, warm_up, models_in)
        models = {"fastembed": models_in, "infinity": sentence_transformers}
        peers, peer_versions = open_peers(peer or [], models, threads, warm_up, opened)
        others += peers
        measured = measure([*ours, *others], texts, task.rounds)
    reference = fastest(others or ours[-1:], measured)
    results = summarise([*ours, *others], measured, task, reference)
    settings = {
        "corpus": corpus_name(corpus),
        "documents": len(task.documents),
        "tokens": sum(task.tokens),
        "rounds": len(task.rounds),
        "threads": threads,
        "checkpoints": {c.name: c.fingerprint[:12] for c in checkpoints},
        "sentence_transformers": _weights(sentence_transformers),
        "peers": peer_versions,
        "reference": reference,
    }
    publish("encoder", source, settings, results, table)


def set_threads(threads: int) -> None:
    """Give all tokenizers the same number of threads; call this before any of them runs."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder is given; nothing is looked up


def prepare(documents: Sequence[Document], tokenizer: BlockTokenizer, rounds: int) -> Task:
    """Leave out documents that Longmatch would truncate, and split the rest evenly into rounds."""
    receipts = [tokenizer(document.text).receipt for document in documents]
    whole = [number for number, r in enumerate(receipts) if r.tokens_read == r.tokens]
    tokens = [receipts[number].tokens for number in whole]
    return Task(
        [documents[n] for n in whole], tokens, split_evenly(tokens, min(rounds, len(whole)))
    )


def open_sentence_transformers(
    folder: Path | None, threads: int, texts: Sequence[str], work: Path
) -> list[TimedEncoder]:
    """Open a sentence-transformers model with every back end; `texts` are used to warm up.

    `work` gets the model as ONNX.
    """
    if folder is None:
        return []
    from benchmarks.speed.encoders.sentence_transformers_chunks import (
        open_chunk_encoders,  # needs torch
    )

    return list(open_chunk_encoders(folder, threads, texts, work))


def open_peers(
    listed: Sequence[str],
    models: Mapping[str, Path | None],
    threads: int,
    texts: Sequence[str],
    opened: ExitStack,
) -> tuple[list[TimedEncoder], dict[str, dict[str, str]]]:
    """Start the peers that were listed as NAME=PYTHON; return them and their versions.

    Raises:
        typer.BadParameter: there is no such peer or interpreter, or no model.
    """
    encoders, versions = [], {}
    for choice in listed:
        name, _, python = choice.partition("=")
        folder = models.get(name)
        if folder is None or not Path(python).exists() or models["infinity"] is None:
            raise typer.BadParameter(
                f"{choice!r}: NAME=PYTHON of {', '.join(models)}, and --sentence-transformers",
                param_hint="--peer",
            )
        peer = open_peer(name, Path(python), folder, threads, texts)
        encoder, versions[name] = opened.enter_context(peer)
        encoders.append(encoder)
    return encoders, versions


def measure(
    encoders: Sequence[TimedEncoder], texts: Sequence[str], rounds: Sequence[Sequence[int]]
) -> dict[str, list[RoundResult]]:
    """Let every encoder read the documents of each round, in turns."""

    def runner(encoder: TimedEncoder) -> Callable[[int], RoundResult]:
        def run(number: int) -> RoundResult:
            some = [texts[position] for position in rounds[number]]
            started = time.perf_counter()
            tokens = encoder.tokenise(some)
            tokenised = time.perf_counter()
            encoder.encode(tokens)
            if encoder.own_seconds is not None:
                return RoundResult(0.0, encoder.own_seconds())
            return RoundResult(tokenised - started, time.perf_counter() - tokenised)

        return run

    return interleave({encoder.name: runner(encoder) for encoder in encoders}, len(rounds))


def fastest(encoders: Sequence[TimedEncoder], measured: dict[str, list[RoundResult]]) -> str:
    """Return the name of the encoder that took the least time."""
    return min((encoder.name for encoder in encoders), key=lambda name: _seconds(measured[name]))


def summarise(
    encoders: Sequence[TimedEncoder],
    measured: dict[str, list[RoundResult]],
    task: Task,
    reference: str,
) -> dict[str, Any]:
    """Return the figures of each encoder, also as a ratio to the reference."""
    tokens = [sum(task.tokens[position] for position in part) for part in task.rounds]
    reference_seconds = [turn.seconds for turn in measured[reference]]
    results: dict[str, Any] = {}
    for encoder in encoders:
        mine = measured[encoder.name]
        total = [turn.seconds for turn in mine]
        encoding = [turn.encode_seconds for turn in mine]
        tokenising = [turn.tokenise_seconds for turn in mine]
        figures = {
            "documents_per_second": ratios([len(part) for part in task.rounds], total),
            "tokens_per_second": ratios(tokens, total),
            "tokens_per_second_encoding": ratios(tokens, encoding),
            "times_as_fast": ratios(reference_seconds, total),
        }
        if all(tokenising):
            figures["tokens_per_second_tokenising"] = ratios(tokens, tokenising)
        results[encoder.name] = {
            "precision": encoder.precision,
            "batch_size": encoder.batch_size,
            "reading_share": encoder.reading_share,
            **{name: asdict(figure) for name, figure in figures.items()},
        }
    return results


def table(record: dict[str, Any]) -> str:
    """Lay out the record of a run."""
    settings, results = record["settings"], record["results"]
    header = ["", "batch", "documents/s", "tokens/s", "encoding", "tokenising", "times as fast"]
    rows = [
        [
            name,
            figures["batch_size"],
            Spread(**figures["documents_per_second"]),
            Spread(**figures["tokens_per_second"]),
            figures["tokens_per_second_encoding"]["median"],
            figures.get("tokens_per_second_tokenising", {"median": ""})["median"],
            Spread(**figures["times_as_fast"]),
        ]
        for name, figures in results.items()
    ]
    return (
        f"{settings['documents']} documents of {settings['corpus']}, {settings['tokens']:,} "
        f"tokens, {settings['threads']} threads; median (lowest-highest) of {settings['rounds']} "
        f"rounds; encoding and tokenising: tokens/s of each alone; times as fast as "
        f"{settings['reference']}\n\n{markdown_table(header, rows)}"
    )


def _seconds(measured: Sequence[RoundResult]) -> float:
    return sum(turn.seconds for turn in measured)


def _weights(folder: Path | None) -> str:
    """Return the digest of the weights in a folder; the path is not recorded."""
    if folder is None:
        return ""
    return file_digest(folder / "model.safetensors")[:12]


if __name__ == "__main__":
    typer.run(main)
