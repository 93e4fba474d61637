"""SMITH and ERNIE-Doc pretrained from random weights and fine-tuned, against no pretraining.

Each architecture is pretrained once on texts alone: SMITH by masked words and masked sentence
blocks (WP+SP), ERNIE-Doc by masked words and segment reordering. The vocabulary is of these texts,
too. Then it is fine-tuned on the links of another corpus, with several seeds, from the pretrained
weights and from random ones: the same steps, batches and rate; the weights after the last step
count. Both are measured on test pairs and test queries, over documents that no training saw.

Everything is kept in a work folder: rerun the command to resume.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.common import commit, make_record, write_record
from benchmarks.pretraining.plan import (
    ARCHITECTURES,
    ERNIE_DOC,
    PRETRAINED,
    RANDOM,
    SMITH,
    Size,
    blocks_of,
    longer,
    tuning,
)
from benchmarks.pretraining.runs import (
    Bench,
    Kept,
    Tuning,
    curve_of,
    open_work,
    pretrain,
    read_judged,
    took,
    tune,
    vectors_of,
)
from benchmarks.pretraining.table import plot, table
from encoder.arrays import Float32
from evaluation.encoded_corpus import EncodedCorpus
from index.errors import CorpusError
from training.comparison.measure import Truth, read_truth, report_quality
from training.comparison.runs import Prepared
from training.data.corpus import TrainingCorpus
from training.data.pair_files import TEST, VALID
from training.data.sampling import TrainingSource
from training.progress import SilentTrainingProgress
from training.recipe import parse_training_recipe

KEPT = Path(tempfile.gettempdir(), "longmatch-pretraining")
SIZE = Size(
    pretraining_steps={SMITH: 5_000, ERNIE_DOC: 1_800},
    tuning_steps={SMITH: 60, ERNIE_DOC: 60},
)
_POINTS = 60  # of a curve in the record


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    texts: Annotated[str, typer.Option(help="The folder of texts in it.")] = "wiki_long",
    corpus: Annotated[
        str, typer.Option(help="The corpus with links, pairs and splits in it.")
    ] = "wikispeedia",
    work: Annotated[Path, typer.Option(help="Keeps every run.")] = KEPT,
    threads: Annotated[int, typer.Option(min=1, help="Of PyTorch.")] = 1,
    times: Annotated[
        int, typer.Option(min=1, help="Pretrain for so many times the usual steps.")
    ] = 1,
    only: Annotated[str, typer.Option(help=f"One of {', '.join(ARCHITECTURES)}.")] = "",
) -> None:
    """Train the models that are not kept yet, and measure all."""
    torch.set_num_threads(threads)
    size = longer(SIZE, times)
    files = tuple(sorted((data / texts).glob("*.jsonl.gz")))[: size.files]
    try:
        if only and only not in ARCHITECTURES:
            raise ValueError(f"--only must be one of {', '.join(ARCHITECTURES)}, not {only!r}")
        if not files:
            raise CorpusError(f"{data / texts}: has no .jsonl.gz")
        bench = Bench(
            size,
            files,
            data / corpus,
            work,
            lambda text: typer.echo(text, err=True),
            SilentTrainingProgress(),
        )
        open_work(work, size, files, data / corpus)
    except (CorpusError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    record = measure_all(bench, (only,) if only else ARCHITECTURES, threads)
    typer.echo(table(record))
    path = write_record(record)
    plot(record, path.with_suffix(".svg"))


def measure_all(bench: Bench, architectures: Sequence[str], threads: int) -> dict[str, Any]:
    """Train what is not kept yet, measure it, and return the record."""
    source = commit()
    settings = {
        "texts": [path.name for path in bench.texts],
        "corpus": bench.judged.name,
        "size": asdict(bench.size),
        "threads": threads,
    }
    for architecture in architectures:  # the longest runs first
        pretrain(bench, architecture)
    results = {name: measure(bench, name) for name in architectures}
    return make_record("pretraining", source, settings, results)


def measure(bench: Bench, architecture: str) -> dict[str, Any]:
    """Fine-tune an architecture from both starts, and compare them."""
    data, sources = read_judged(bench, architecture)
    rows = np.flatnonzero(np.isin(data.parts, (VALID, TEST)))
    seen = _part_of(data.encoded, rows)
    vectors: dict[str, list[Float32]] = {}
    begins: dict[str, Any] = {}
    for start in (RANDOM, PRETRAINED):
        models = [Tuning(architecture, start, seed) for seed in bench.size.seeds]
        begins[start] = _kept(models, bench, data, sources)
        vectors[start] = [vectors_of(bench, one, data, sources, rows.tolist()) for one in models]
    first = tuning(architecture, bench.size, bench.size.seeds[0])
    prepared = Prepared(replace(data, encoded=seen), sources, parse_training_recipe(first))
    truth = _within(read_truth(data.files, seen.ids), seen.ids)
    return {
        "pretraining": _pretraining(bench, architecture),
        "tuning": begins,
        "documents_searched": len(seen.ids),
        "tokens_read": seen.archive.mean_tokens(blocks_of(architecture, bench.size)),
        **report_quality(vectors, prepared, truth),
    }


def _kept(
    models: Sequence[Tuning], bench: Bench, data: TrainingCorpus, sources: list[TrainingSource]
) -> Kept:
    """Fine-tune models of one start, and return what is kept of them."""
    kept = [tune(bench, one, data, sources) for one in models]
    listed = ("before", "after", "seconds", "cpu_seconds")
    return {"figure": kept[0]["figure"], **{name: [one[name] for one in kept] for name in listed}}


def _part_of(encoded: EncodedCorpus, rows: np.ndarray[Any, Any]) -> EncodedCorpus:
    """Return some documents of a corpus."""
    places = rows.tolist()
    return replace(
        encoded,
        ids=tuple(encoded.ids[place] for place in places),
        hashes=tuple(encoded.hashes[place] for place in places),
        rows=encoded.rows[rows],
        tokens=encoded.tokens[rows],
    )


def _within(truth: Truth, ids: Sequence[str]) -> Truth:
    """Leave out judgements of other documents, and queries that have no relevant one left."""
    known = set(ids)
    queries = {
        query: {name: relevance for name, relevance in judged.items() if name in known}
        for query, judged in truth.queries.items()
    }
    return replace(truth, queries={q: found for q, found in queries.items() if any(found.values())})


def _pretraining(bench: Bench, architecture: str) -> dict[str, Any]:
    """Return what pretraining did: its losses before, at the best step, and on the way."""
    curve = curve_of(bench, architecture)
    validations = [one for one in curve if "validation" in one]
    steps = [one for one in curve if "loss" in one]
    best = min(validations, key=lambda one: one["validation"])
    every = max(1, len(steps) // _POINTS)
    return {
        **took(bench, f"{architecture}-pretraining"),
        "steps": len(steps),
        "documents": len(steps) * bench.size.pretraining_documents,
        "best_step": best["step"],
        "before": _losses(validations[0], "validation"),
        "best": _losses(best, "validation"),
        "validation": [{"step": one["step"], **_losses(one, "validation")} for one in validations],
        "training": [
            {"step": some[-1]["step"], **_mean([_losses(one, "loss") for one in some])}
            for some in (steps[place : place + every] for place in range(0, len(steps), every))
        ],
    }


def _losses(record: Mapping[str, Any], name: str) -> dict[str, float]:
    """Return the losses of a record of a curve by their last names, and their sum as `loss`."""
    parts = {key.split(".")[-1]: value for key, value in record.items() if key.count(".") == 2}
    return {"loss": record[name], **parts}


def _mean(losses: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in losses])) for name in losses[0]}


if __name__ == "__main__":
    typer.run(main)
