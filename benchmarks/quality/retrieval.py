"""How good are the matches, compared with freely available baselines?

Every system answers the same queries of one part of each corpus and classifies the same pairs,
with thresholds chosen on the validation pairs. A corpus is a folder of `--data` with
`corpus.jsonl.gz`, `qrels.tsv` and `splits.tsv`, and `pairs.<part>.jsonl.gz` where there are pairs.

Encoding block vectors is slow, so they are kept in a folder for the next run.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import commit, markdown_table, publish
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.baselines import BASELINES
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.experiment import (
    Vectors,
    baseline_systems,
    longmatch_systems,
    pair_task,
    retrieval_task,
)
from evaluation.judgements import PARTS, Qrels, read_pairs, read_qrels, read_splits
from evaluation.report import choose_reference, report_pairs, report_retrieval
from evaluation.systems import System
from index.errors import CorpusError
from index.progress import SilentProgress

KEPT_BLOCKS = Path(tempfile.gettempdir(), "longmatch-blocks")
_RETRIEVAL, _PAIRS = ("nDCG@10", "MAP@100", "recall@10"), ("accuracy", "F1", "AUC")
_QUESTIONS = {  # of a report: how they are called, and what is shown of them
    "retrieval": ("retrieval", _RETRIEVAL),
    "pairs": ("pairs", _PAIRS),
}


@dataclass(frozen=True, slots=True)
class CorpusPart:
    """A corpus with judgements: its folder, and the part to evaluate."""

    folder: Path
    part: str

    @property
    def corpus(self) -> Path:
        """The documents."""
        return self.folder / "corpus.jsonl.gz"

    def judgements(self) -> Qrels:
        """Read the judgements of the queries of the part."""
        splits = read_splits(self.folder / "splits.tsv")
        qrels = read_qrels(self.folder / "qrels.tsv")
        return {query: found for query, found in qrels.items() if splits.get(query) == self.part}

    def pairs(self, part: str) -> Path:
        """Return where the pairs of a part would be."""
        return self.folder / f"pairs.{part}.jsonl.gz"


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    split: Annotated[str, typer.Option(help="valid or test: the queries and pairs.")] = "test",
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint.")] = DEFAULT_CHECKPOINT,
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
) -> None:
    """Measure retrieval and pairs of every system on every corpus that has judgements."""
    source = commit()
    encoder = OnnxEncoder(load_checkpoint(checkpoint))
    results = {}
    for corpus_part in find_corpora(data, split):
        name = corpus_part.folder.name
        typer.echo(name, err=True)
        results[name] = measure(corpus_part, encoder, blocks / name)
    settings = {
        "split": split,
        "checkpoint": encoder.checkpoint.name,
        "fingerprint": encoder.fingerprint,
        "precision": encoder.precision,
    }
    publish("quality", source, settings, results, table)


def find_corpora(data: Path, part: str) -> list[CorpusPart]:
    """Find the corpora of a folder that have judgements, by name.

    Raises:
        CorpusError: an unknown part, or there is none.
    """
    if part not in PARTS:
        raise CorpusError(f"--split: {part!r} is none of {', '.join(PARTS)}")
    found = [CorpusPart(qrels.parent, part) for qrels in sorted(data.glob("*/qrels.tsv"))]
    if not found:
        raise CorpusError(f"{data}: no folder in it has a qrels.tsv")
    return found


def measure(corpus_part: CorpusPart, encoder: OnnxEncoder, blocks: Path) -> dict[str, Any]:
    """Measure all systems on one corpus."""
    encoded = keep_blocks(corpus_part.corpus, blocks, encoder, SilentProgress())
    embedded = embed_encoded_corpus(encoded, encoder)
    vectors = Vectors(embedded, embedded)
    systems: list[System] = [
        *longmatch_systems(vectors, encoder.checkpoint, "hybrid", [corpus_part.corpus]),
        *baseline_systems(BASELINES, vectors, [corpus_part.corpus], encoded.select(embedded.ids)),
    ]
    models = {system.name: [system] for system in systems}
    reference = choose_reference(list(models))
    qrels = corpus_part.judgements()
    task = retrieval_task(vectors, qrels, set(qrels))
    report: dict[str, Any] = {
        "documents": len(embedded.ids),
        "tokens": int(embedded.tokens.sum()),
        "tokens_read": int(embedded.tokens_read.sum()),
    }
    report["retrieval"] = report_retrieval(models, task, reference)
    if corpus_part.pairs(corpus_part.part).exists():
        chosen_on = corpus_part.pairs("valid")
        use_valid = corpus_part.part != "valid" and chosen_on.exists()
        pairs = pair_task(
            embedded,
            read_pairs(corpus_part.pairs(corpus_part.part)),
            read_pairs(chosen_on) if use_valid else [],
        )
        report["pairs"] = report_pairs(models, pairs, reference)
    return report


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown: a table for each measure, systems by corpora."""
    results: dict[str, Any] = record["results"]
    part = record["settings"]["split"]
    measured = [
        f"{measure}, {part} {heading} (95 % interval; p against {reference})\n\n{laid_out}"
        for question, (heading, measures) in _QUESTIONS.items()
        for measure in measures
        for reference, laid_out in _tables(results, question, measure)
    ]
    return "\n\n".join(measured)


def _tables(results: dict[str, Any], question: str, measure: str) -> Iterator[tuple[str, str]]:
    """Format one measure, if any corpus has it."""
    measured = {name: report[question] for name, report in results.items() if question in report}
    if not measured:
        return
    first = next(iter(measured.values()))
    rows = []
    for system in first["systems"]:
        figures = [_figure(report["systems"][system], measure) for report in measured.values()]
        values = [figure["value"] for figure, _ in figures if figure]
        mean = f"{sum(values) / len(values):.3f}" if values else ""
        rows.append([system, *(_cell(*pair) for pair in figures), mean])
    yield first["reference"], markdown_table(["system", *measured, "mean"], rows)


def _figure(figures: dict[str, Any], measure: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return a figure, or its upper bound, and its comparison; empty where there is none."""
    for name in (measure, f"{measure}_upper_bound"):
        if name in figures:
            return figures[name], figures.get("against", {}).get(name, {})
    return {}, {}


def _cell(figure: dict[str, float], against: dict[str, float]) -> str:
    if not figure:
        return ""
    cell = f"{figure['value']:.3f} ({figure['low']:.3f}-{figure['high']:.3f})"
    return f"{cell} p {against['p']:.4f}" if against else cell


if __name__ == "__main__":
    typer.run(main)
