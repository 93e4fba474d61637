"""Commands that read a corpus or a document: index, match, embed."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from index.build import build_index
from index.corpus import read_document
from index.embed import embed_corpus, write_embedded_corpus
from index.vector_index import NO_VECTOR
from service.commands.common import (
    DEFAULT_DATA,
    INTERRUPTED,
    OK,
    REFUSED,
    CheckpointOption,
    CorpusArgument,
    DataOption,
    PrecisionOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
    opened,
    print_json,
)
from service.console import observing, printable


def index(
    corpus: CorpusArgument,
    data: DataOption = DEFAULT_DATA,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Read a corpus into an index; run it again to go on, or to take up what has changed."""
    loaded = load(checkpoint, precision, provider, threads)
    with opened(data, loaded.checkpoint) as directory:
        try:
            with observing(console) as observer:
                report = build_index(corpus, directory, loaded.tokenizer, loaded.encoder, observer)
        except KeyboardInterrupt:
            console.print("stopped: the same command goes on from here")
            raise typer.Exit(INTERRUPTED) from None
        documents = len(directory.store)
    console.print(
        f"{data}: {documents} documents; {report.encoded} encoded ({report.tokens} tokens, "
        f"{report.tokens_left_out} left out), {report.unchanged} unchanged, "
        f"{report.refused} refused",
    )
    raise typer.Exit(REFUSED if report.refused else OK)


def match(
    file: Annotated[Path, typer.Argument(help="The document: text, Markdown, RST, HTML or PDF.")],
    data: DataOption = DEFAULT_DATA,
    top_k: Annotated[int, typer.Option(min=1, help="How many matches.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Print the documents of an index that match a file, best first; a server may be running."""
    loaded = load(checkpoint, precision, provider, threads)
    blocks = loaded.tokenizer(read_document(file).text)
    with opened(data, loaded.checkpoint, read_only=True) as directory:
        vectors = loaded.encoder.encode([blocks]).document_vectors
        found = directory.index.search(vectors, top_k)
        documents = directory.store.get([i for i in found.ids[0].tolist() if i != NO_VECTOR])
    matches = [
        {
            "id": documents[vector_id].id,
            "score": round(score, 6),
            "title": documents[vector_id].title,
            "metadata": dict(documents[vector_id].metadata),
        }
        for vector_id, score in zip(found.ids[0].tolist(), found.scores[0].tolist(), strict=True)
        if vector_id in documents
    ]
    if as_json:
        print_json({"matches": matches, "receipt": asdict(blocks.receipt)})
        return
    table = Table("score", "id", "title", box=None)
    for found_match in matches:
        score, name, title = (found_match[key] for key in ("score", "id", "title"))
        table.add_row(f"{score:.4f}", printable(str(name)), printable(str(title)))
    Console(markup=False).print(table)
    receipt = blocks.receipt
    console.print(f"read {receipt.tokens_read} of {receipt.tokens} tokens")


def embed(
    corpus: CorpusArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Write the document vectors of a corpus: ids, vectors [N, D], tokens, tokens_read."""
    if not output.parent.is_dir():
        raise typer.BadParameter(f"{output.parent} is not a folder", param_hint="--output")
    loaded = load(checkpoint, precision, provider, threads)
    with observing(console) as observer:
        embedded = embed_corpus(corpus, loaded.tokenizer, loaded.encoder, observer)
    write_embedded_corpus(output, embedded)
    console.print(f"{output}: {len(embedded.ids)} documents, {embedded.refused} refused")
    raise typer.Exit(REFUSED if embedded.refused else OK)
