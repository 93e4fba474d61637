"""The tables of `benchmarks.gpu.encoding`."""

from collections.abc import Mapping
from typing import Any

from benchmarks.common import Spread, markdown_table
from evaluation.markdown import short_number

BENCHMARK = "gpu-encoding"
_STEPS = ("tokenising", "packing", "upload", "compute", "download", "terms", "document level")


def table(record: Mapping[str, Any]) -> str:
    """Format a record as Markdown."""
    settings, results = record["settings"], record["results"]
    names = list(settings["checkpoints"])
    gpu = settings["gpu"].get("name", "no GPU")
    header = f"{settings['device']}, {gpu}; {settings['tokens']:,} tokens a document"
    return "\n\n".join(
        [
            header,
            _throughput(names, settings, results),
            "Seconds for 1,000 documents, one step after the other:",
            _steps(names, results),
            f"From text, {settings['texts']} documents of {settings['corpus']}:",
            _from_text(names, results),
            "The device and the CPU, the same graphs:",
            _parity(names, results),
        ]
    )


def _throughput(names: list[str], settings: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    rows = []
    for name in names:
        for size in settings["batch_tokens"]:
            one = results[f"{name}-throughput-{size}"]
            rows.append(
                [
                    f"{name} {one['precision']}",
                    f"{size:,}",
                    str(Spread(**one["documents_per_second"])),
                    short_number(one["tokens_per_second"]),
                    str(Spread(**one["sentence_level_per_second"])),
                    short_number(one["gflop_of_a_document"]),
                    short_number(one["tflop_per_second"]),
                    _percent(one["share_of_peak"]),
                    _number(one["most_documents_per_second"]),
                ]
            )
    columns = ["checkpoint", "tokens a call", "documents/s", "tokens/s", "sentence level alone"]
    return markdown_table(
        [*columns, "GFLOP a document", "TFLOP/s", "share of peak", "documents/s at peak"], rows
    )


def _steps(names: list[str], results: Mapping[str, Any]) -> str:
    rows = []
    for name in names:
        one = results[f"{name}-steps"]
        seconds = [short_number(one["seconds"][step]) for step in _STEPS]
        rows.append([name, f"{one['batch_tokens']:,}", *seconds])
    return markdown_table(["checkpoint", "tokens a call", *_STEPS], rows)


def _from_text(names: list[str], results: Mapping[str, Any]) -> str:
    rows = []
    for name in names:
        one = results[f"{name}-text"]
        rows.append(
            [
                name,
                short_number(one["documents_per_second"]),
                str(Spread(**one["tokens_per_second"])),
                str(Spread(**one["encoding_tokens_per_second"])),
            ]
        )
    return markdown_table(["checkpoint", "documents/s", "tokens/s", "encoding alone"], rows)


def _parity(names: list[str], results: Mapping[str, Any]) -> str:
    rows = []
    for name in names:
        one = results[f"{name}-parity"]
        rows.append(
            [
                f"{name} {one['precision']}",
                str(one["documents"]),
                f"{one['block_difference']:.2g}",
                f"{one['document_difference']:.2g}",
                f"{one['document_cosine']:.6f}",
                _percent(one["same_nearest"]),
                _percent(one["same_neighbours"]),
            ]
        )
    columns = ["checkpoint", "documents", "largest difference of block vectors"]
    return markdown_table(
        [
            *columns,
            "of document vectors",
            "least cosine",
            "same nearest document",
            "same 10 nearest",
        ],
        rows,
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else short_number(value)
