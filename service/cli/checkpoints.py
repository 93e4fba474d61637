"""Commands that make checkpoints: create-checkpoint, export. They need the extra `train`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.errors import EncoderError
from encoder.export.quality import Quality
from evaluation.judgements import read_ids, read_qrels
from evaluation.quality_gate import (
    DOCUMENTS,
    NEIGHBOURS,
    GateSample,
    measure_quality,
    sample_corpus,
    sample_stdlib,
)
from index.errors import CorpusError
from service.cli.options import console
from service.cli.progress import show_progress

if TYPE_CHECKING:
    from types import ModuleType

    from encoder.export.export import Gate

PrecisionsOption = Annotated[
    list[str], typer.Option("--precision", help="int8, fp16 or fp32; may be repeated.")
]
GateDocumentsOption = Annotated[
    int, typer.Option(min=NEIGHBOURS + 2, help="Documents that the gate encodes, at most.")
]


def create_checkpoint(
    recipe: Annotated[Path, typer.Argument(help="A TOML file like those in encoder/recipes.")],
    bert: Annotated[
        str,
        typer.Option(help="Folder or hub name of a BERT checkpoint: tokenizer, sentence level."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The directory to write.")],
    precision: PrecisionsOption = ["int8"],  # noqa: B006  Typer copies it
    seed: Annotated[int, typer.Option(help="Of the random initial weights.")] = 0,
) -> None:
    """Make an untrained checkpoint from a recipe and export it, without the quality gate."""
    create, _ = _training_modules()
    checkpoint = create.create_checkpoint(create.read_recipe(recipe), bert, output, seed=seed)
    _export(checkpoint, precision)


def export(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint directory with its weights.")],
    precision: PrecisionsOption,
    corpus: Annotated[
        Path | None,
        typer.Option(help="For the quality gate; by default Python's documentation."),
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

    Fails if a graph does not compute what the model computes, or if int8 or fp16 keep less than
    98 % of the 10 nearest neighbours of fp32, or lose more than 0.5 % of its nDCG@10.
    """
    _training_modules()
    opened = load_checkpoint(checkpoint)
    if set(precision) == {"fp32"}:
        _export(opened, precision)
        return
    sample = _sample(corpus, qrels, ids, gate_documents)
    _export(opened, precision, quality_gate(lambda: sample))


def quality_gate(sample: Callable[[], GateSample]) -> "Gate":
    """Make a gate that reports on the console.

    Args:
        sample: returns the documents for the comparison; called when the gate runs.
    """

    def gate(staged: Checkpoint, smaller: Sequence[str]) -> Mapping[str, Quality]:
        documents = sample()
        with show_progress(console) as progress:
            qualities = measure_quality(staged, smaller, documents, progress)
        for name, quality in qualities.items():
            console.print(f"{name}: {_in_words(quality)}")
        return qualities

    return gate


def _sample(corpus: Path | None, qrels: Path | None, ids: Path | None, limit: int) -> GateSample:
    if corpus is None:
        if qrels is not None or ids is not None:
            raise typer.BadParameter("--qrels and --ids take --corpus: which documents are judged?")
        return sample_stdlib(limit)
    if qrels is None:
        if ids is not None:
            raise typer.BadParameter("--ids takes --qrels: it says which of their queries count")
        return sample_corpus(corpus, {}, limit=limit)
    judgements = read_qrels(qrels)
    chosen = set(judgements if ids is None else read_ids(ids))
    judgements = {query: judged for query, judged in judgements.items() if query in chosen}
    if not judgements:
        raise CorpusError(f"{ids}: none of these ids is a query of {qrels}")
    return sample_corpus(corpus, judgements, limit=limit)


def _in_words(quality: Quality) -> str:
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
    _, export_module = _training_modules()
    parities = export_module.export_checkpoint(checkpoint, precisions, gate)
    for precision, parity in parities.items():
        console.print(
            f"{precision}: cosine to the model at least {parity.block_cosine:.5f} for blocks, "
            f"{parity.document_cosine:.5f} for documents"
        )


def _training_modules() -> "tuple[ModuleType, ModuleType]":
    try:
        from encoder.export import (
            create,  # torch is not installed where Longmatch only serves
            export,  # torch is not installed where Longmatch only serves
        )
    except ImportError as error:
        raise EncoderError(
            f"making checkpoints needs the extra 'train': pip install 'longmatch[train]' ({error})"
        ) from error
    return create, export
