"""The CoLDE benchmark as tables and a picture; needs no torch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.ablation.data import NDCG, PAIR_MEASURES
from benchmarks.common import markdown_table

_MEASURE = "accuracy, test pairs"


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown: rates, quality, and the paper's figures 8, 6 and 7."""
    results, corpora = record["results"], record["settings"]["corpora"]
    return "\n\n".join(
        [
            *_rates(results.get("rates", {})),
            f"Test pairs and queries (p against {results['reference']})",
            _quality(results["quality"], corpora),
            "Accuracy on the test pairs when the sections of every document change places",
            _shuffled(results["quality"]),
            *_batches(results.get("batches", {})),
            "Accuracy on the test pairs by the tokens of a document that training reads",
            _lengths(results["lengths"], record["settings"]["tokens_read"]),
        ]
    )


def plot(record: dict[str, Any], path: Path) -> None:
    """Draw the paper's figure 7, and beside it its figures 8 (`-shuffled`) and 6 (`-batches`).

    Raises:
        CorpusError: the extra `evaluate` is not installed.
        OSError: the file cannot be written.
    """
    from evaluation.plots import plot_by_length, plot_by_tokens_read
    from evaluation.significance import Estimate

    read = record["settings"]["tokens_read"]
    curves = {
        row: {read[length]: figures["accuracy"] for length, figures in one.items()}
        for row, one in record["results"]["lengths"].items()
    }
    plot_by_tokens_read(path, curves, _MEASURE)
    quality = record["results"]["quality"]
    groups = {
        row: {
            reading: Estimate(*[value] * 3) for reading, value in quality[row]["shuffled"].items()
        }
        for row in curves
        if row in quality
    }
    beside = path.with_name(f"{path.stem}-shuffled{path.suffix}")
    plot_by_length(beside, groups, _MEASURE, "what changes places")
    batches = {
        row: {
            documents: Estimate(cell["accuracy"], min(cell["by_seed"]), max(cell["by_seed"]))
            for documents, cell in one.items()
        }
        for row, one in record["results"].get("batches", {}).items()
    }
    if batches:
        beside = path.with_name(f"{path.stem}-batches{path.suffix}")
        plot_by_length(beside, batches, _MEASURE, "documents of a batch")


def _rates(rows: Mapping[str, Any]) -> Iterator[str]:
    """Format what the rates were chosen by; in older records somebody chose them."""
    if rows:
        rates = list(next(iter(rows.values()))["validation_auc"])
        body = [
            [row, *(f"{one['validation_auc'][rate]:.3f}" for rate in rates), f"{one['rate']:g}"]
            for row, one in rows.items()
        ]
        yield "AUC of the validation pairs by learning rate; the best rate counts below"
        yield markdown_table(["", *rates, "best"], body)


def _quality(rows: Mapping[str, Any], corpora: list[str]) -> str:
    header = ["", "rate", "seeds"]
    for corpus in corpora:
        header += [f"{measure} {corpus}" for measure in (*PAIR_MEASURES, NDCG)]
    header += ["mean accuracy", "of seeds", "p", "mean nDCG@10", "p", "CPU seconds"]
    return markdown_table(header, [_quality_row(row, one, corpora) for row, one in rows.items()])


def _quality_row(row: str, one: Mapping[str, Any], corpora: list[str]) -> list[object]:
    tunings = [settings["tuning"] for settings in one["settings"]]
    rates = [f"{each['optimiser']['document_rate']:g}" for each in tunings if each["steps"]]
    cells: list[object] = [row, ", ".join(rates), len(one["seeds"])]
    for corpus in corpora:
        cells += [f"{one['corpora'][corpus][m]:.3f}" for m in (*PAIR_MEASURES, NDCG)]
    against = one["against"]
    return [
        *cells,
        f"{one['accuracy']:.3f}",
        f"{min(one['by_seed']):.3f}-{max(one['by_seed']):.3f}",
        f"{against['accuracy']['p']:.4f}" if against else "",
        f"{one['ndcg']:.3f}",
        f"{against['ndcg']['p']:.4f}" if against else "",
        round(one["cpu_seconds"]),
    ]


def _shuffled(rows: Mapping[str, Any]) -> str:
    readings = list(next(iter(rows.values()))["shuffled"])
    body = [
        [row, *(f"{one['shuffled'][reading]:.3f}" for reading in readings)]
        for row, one in rows.items()
    ]
    return markdown_table(["", *readings], body)


def _batches(rows: Mapping[str, Any]) -> Iterator[str]:
    """Format the accuracy by the size of the batch; records of older runs have none."""
    if rows:
        steps = {n: cell["steps"] for one in rows.values() for n, cell in one.items()}
        body = [
            [row, *(_with_seeds(one[n]) if n in one else "" for n in steps)]
            for row, one in rows.items()
        ]
        yield "Accuracy on the test pairs by the documents of a batch (lowest and highest seed)"
        yield markdown_table(["", *(f"{n} ({count} steps)" for n, count in steps.items())], body)


def _with_seeds(cell: Mapping[str, Any]) -> str:
    by_seed = cell["by_seed"]
    return f"{cell['accuracy']:.3f} ({min(by_seed):.3f}-{max(by_seed):.3f})"


def _lengths(rows: Mapping[str, Any], read: Mapping[str, int]) -> str:
    lengths = list(read)
    body = [
        [row, *(f"{one[length]['accuracy']:.3f}" if length in one else "" for length in lengths)]
        for row, one in rows.items()
    ]
    return markdown_table(["", *(f"{read[length]} ({length})" for length in lengths)], body)
