"""How much quality does a smaller checkpoint cost? Two of them on the same documents and queries.

    python -m benchmarks.reading.checkpoints --data DATA --blocks KEPT
    python -m benchmarks.reading.checkpoints --data DATA --checkpoint SMALLER --reference LARGER

Each mode of search as `benchmarks.reading.curve` measures it with all blocks: nDCG@10 of the test
queries, and the paired difference of the two with its interval and p-value, by corpus and over the
queries of all. Block vectors of both are kept in a folder each.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, make_record, markdown_table, write_record
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from benchmarks.reading.choosers import CHOOSERS
from benchmarks.reading.curve import measure_share, open_documents
from encoder.arrays import Float64
from encoder.checkpoint import find_checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.experiment import SEMANTIC, UNALIGNED, VECTOR
from evaluation.significance import compare_paired, estimate_means
from evaluation.systems import HYBRID

ALL = "all queries"
_SYSTEMS = (VECTOR, SEMANTIC, UNALIGNED, HYBRID)
_NAMES = ("checkpoint", "reference")


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    split: Annotated[str, typer.Option(help="valid or test: the queries.")] = "test",
    checkpoint: Annotated[Path, typer.Option(help="The smaller one.")] = Path("fast"),
    reference: Annotated[Path, typer.Option(help="It is compared with.")] = Path("best"),
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
) -> None:
    """Measure both on every corpus that has judgements, and write the result."""
    source = commit()
    encoders = {
        name: OnnxEncoder(load_checkpoint(find_checkpoint(path)))
        for name, path in zip(_NAMES, (checkpoint, reference), strict=True)
    }
    measured = {}
    for one in find_corpora(data, split):
        typer.echo(one.folder.name, err=True)
        measured[one.folder.name] = {
            name: _measure(one, encoder, blocks / encoder.checkpoint.name / one.folder.name)
            for name, encoder in encoders.items()
        }
    settings = {
        "split": split,
        **{name: encoder.checkpoint.name for name, encoder in encoders.items()},
        "fingerprints": {name: encoder.fingerprint for name, encoder in encoders.items()},
    }
    record = make_record("checkpoints", source, settings, compare(measured))
    typer.echo(table(record))
    write_record(record)


def _measure(one: CorpusPart, encoder: OnnxEncoder, blocks: Path) -> dict[str, Float64]:
    """Return nDCG@10 of each query by system."""
    documents = open_documents(one, encoder, blocks)
    return measure_share(documents, encoder, CHOOSERS["first"], 1.0)[1]


def compare(measured: dict[str, dict[str, dict[str, Float64]]]) -> dict[str, Any]:
    """Compare the two.

    Args:
        measured: by corpus, "checkpoint" or "reference", and system, nDCG@10 of each query.

    Returns:
        By corpus and for all queries: their number, both means, and the paired difference.
    """
    joined = {
        name: {
            system: np.concatenate([of_corpus[name][system] for of_corpus in measured.values()])
            for system in _SYSTEMS
        }
        for name in _NAMES
    }
    return {
        corpus: {
            "queries": len(both["reference"][VECTOR]),
            "systems": {system: _compare_one(both, system) for system in _SYSTEMS},
        }
        for corpus, both in {**measured, ALL: joined}.items()
    }


def _compare_one(both: dict[str, dict[str, Float64]], system: str) -> dict[str, Any]:
    values = {name: both[name][system] for name in _NAMES}
    means = {name: asdict(estimate_means(v[:, None])[0]) for name, v in values.items()}
    return {
        **means,
        "difference": asdict(compare_paired(values["checkpoint"], values["reference"])),
    }


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    rows = []
    for corpus, one in record["results"].items():
        for system, found in one["systems"].items():
            figure = found["difference"]
            rows.append(
                [
                    f"{corpus}, {one['queries']} queries",
                    system,
                    *(f"{found[name]['value']:.4f}" for name in _NAMES),
                    f"{figure['difference']:+.4f} ({figure['low']:+.4f} to {figure['high']:+.4f})",
                    f"{figure['p']:.4f}",
                ]
            )
    names = [record["settings"][name] for name in _NAMES]
    return markdown_table(["nDCG@10", "system", *names, "difference (95 %)", "p"], rows)


if __name__ == "__main__":
    typer.run(main)
