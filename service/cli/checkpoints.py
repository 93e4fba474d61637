"""Commands that make checkpoints: create-checkpoint, export. They need the extra `train`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder.checkpoint import Checkpoint
from encoder.export.quality import Quality
from evaluation.judgements import Qrels, read_ids, read_qrels
from evaluation.quality_gate import (
    DOCUMENTS,
    NEIGHBOURS,
    GateSample,
    measure_quality,
    sample_corpus,
    sample_stdlib,
)
from index.optional_packages import require_extra
from service.cli.checks import (
    OptionError,
    check_output_folder,
    check_precisions,
    check_weights,
    open_checkpoint,
    read_option,
)
from service.cli.indexing.checks import check_corpus
from service.cli.options import console
from service.cli.progress import show_progress

if TYPE_CHECKING:
    from encoder.export.export import Gate

PrecisionsOption = Annotated[
    list[str], typer.Option("--precision", help="int8, fp16 or fp32; may be repeated.")
]
GateDocumentsOption = Annotated[
    int, typer.Option(min=NEIGHBOURS + 2, help="The most documents that the quality gate encodes.")
]


def create_checkpoint(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str,
        typer.Option(help="Folder or hub name of a BERT checkpoint: tokenizer, sentence level."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    seed: Annotated[int, typer.Option(help="Of the weights that are initialised at random.")] = 0,
) -> None:
    """Create a checkpoint from a recipe and export it, without a quality gate, for training."""
    require_extra("train", "create-checkpoint")
    from encoder.export import create  # imports torch

    check_output_folder(output, "--output")
    check_precisions(precision)
    read = read_option("RECIPE", create.read_recipe, recipe)
    _export(create.create_checkpoint(read, bert, output, seed=seed), precision)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint directory with its weights.")],
    precision: PrecisionsOption,
    corpus: Annotated[
        Path | None,
        typer.Option(help="The corpus of the quality gate; by default Python's documentation."),
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option(help="Judgements of the corpus, TREC or BEIR.")
    ] = None,
    ids: Annotated[
        Path | None, typer.Option(help="Only the queries with these ids, one per line.")
    ] = None,
    gate_documents: GateDocumentsOption = DOCUMENTS,
) -> None:
    """Export a checkpoint to ONNX.

    Fails if a graph does not compute what the model does, or if int8 or fp16 keep less than 98 % of
    the 10 nearest neighbours of fp32, or lose more than 0.5 % of its nDCG@10.
    """
    require_extra("train", "export")
    opened = open_checkpoint(checkpoint, option="CHECKPOINT")
    check_weights(checkpoint, "CHECKPOINT")
    check_output_folder(checkpoint, "CHECKPOINT")
    check_precisions(precision)
    _check_sample(corpus, qrels, ids)
    if set(precision) == {"fp32"}:
        _export(opened, precision)
        return
    sample = _sample(corpus, qrels, ids, gate_documents)
    _export(opened, precision, quality_gate(lambda: sample))


def quality_gate(sample: Callable[[], GateSample]) -> "Gate":
    """Make a quality gate that reports its progress and its result on the console.

    Args:
        sample: returns the documents that precisions are compared on; called by the gate.
    """

    def gate(staged: Checkpoint, smaller: Sequence[str]) -> Mapping[str, Quality]:
        documents = sample()
        with show_progress(console) as progress:
            qualities = measure_quality(staged, smaller, documents, progress)
        for name, quality in qualities.items():
            console.print(f"{name}: {_describe(quality)}")
        return qualities

    return gate


def _check_sample(corpus: Path | None, qrels: Path | None, ids: Path | None) -> None:
    if qrels and not corpus:
        raise OptionError("--qrels", "needs --corpus, the documents that are judged")
    if ids and not qrels:
        raise OptionError("--ids", "needs --qrels, the judgements of these queries")
    if corpus:
        check_corpus(corpus, "--corpus")
    if qrels:
        _read_judgements(qrels, ids)


def _read_judgements(qrels: Path, ids: Path | None) -> Qrels:
    judgements = read_option("--qrels", read_qrels, qrels)
    if ids is None:
        return judgements
    chosen = set(read_option("--ids", read_ids, ids))
    judgements = {query: judged for query, judged in judgements.items() if query in chosen}
    if not judgements:
        raise OptionError("--ids", f"{ids}: none of these ids is a query of {qrels}")
    return judgements


def _sample(corpus: Path | None, qrels: Path | None, ids: Path | None, limit: int) -> GateSample:
    if corpus is None:
        return sample_stdlib(limit)
    return sample_corpus(corpus, _read_judgements(qrels, ids) if qrels else {}, limit=limit)


def _describe(quality: Quality) -> str:
    text = (
        f"keeps {quality.neighbours:.2%} of the neighbours of fp32 on {quality.documents} of "
        f"{quality.corpus_documents} documents of {quality.corpus}, {quality.tokens:,} tokens"
    )
    if quality.ndcg is None:
        return text
    return (
        f"{text}; nDCG@10 {quality.ndcg:.4f}, fp32 {quality.ndcg_fp32:.4f}, "
        f"over {quality.queries} queries"
    )


def _export(checkpoint: Checkpoint, precisions: list[str], gate: "Gate | None" = None) -> None:
    from encoder.export.export import export_checkpoint  # imports torch

    parities = export_checkpoint(checkpoint, precisions, gate)
    for precision, parity in parities.items():
        console.print(
            f"{precision}: cosine to the model at least {parity.block_cosine:.5f} for blocks, "
            f"{parity.document_cosine:.5f} for documents"
        )
