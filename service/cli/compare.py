"""The command that compares two documents: compare."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from encoder.alignment.checkpoint_space import open_space
from encoder.alignment.space import AlignmentSpace
from encoder.comparison.compare import compare_texts
from encoder.comparison.result import AlignedPassage, Comparison
from index.corpus.reader import read_document
from index.directory.data_directory import DataDirectory
from index.search.calibrator import open_calibrator
from index.search.fusion import read_fusion
from index.sqlite.block_vectors import block_vectors_of
from service.api.schemas.compare import comparison_body
from service.cli.checks import check_data_directory, check_document, check_output_file
from service.cli.options import (
    DEFAULT_DATA,
    CheckpointOption,
    DataOption,
    Loaded,
    PrecisionOption,
    ProviderOption,
    ThreadsOption,
    console,
    load,
    opened,
    print_json,
)
from service.cli.progress import printable
from service.encode import EncodedText
from service.errors import DocumentNotFoundError
from service.matching.compare import Explanation, PairWorth
from service.matching.queries import add_stored_blocks, find_stored, to_comparable
from service.web.report import render_report

STORED = "id:"
_EXCERPT = 60  # characters of a passage in the table
_ROWS = 20

SideArgument = Annotated[str, typer.Argument(help="A file, or id:… of a document in --data.")]


def compare(
    left: SideArgument,
    right: SideArgument,
    data: DataOption = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the comparison as an HTML page here.")
    ] = None,
    checkpoint: CheckpointOption = None,
    precision: PrecisionOption = None,
    provider: ProviderOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Compare two documents: how and where they match; a server may be running."""
    for name, argument in ((left, "LEFT"), (right, "RIGHT")):
        if not name.startswith(STORED):
            check_document(Path(name), argument)
    stored = any(name.startswith(STORED) for name in (left, right))
    if stored:
        check_data_directory(data)
    if html:
        check_output_file(html, "--html")
    loaded = load(checkpoint, precision, provider, threads, data if stored else None)
    with opened(data, loaded.encoder, read_only=True) if stored else nullcontext() as directory:
        ours, theirs = (_source(name, loaded, directory) for name in (left, right))
        space = _space(loaded, directory)
    found = _compare(loaded, data, space, ours, theirs)
    if html:
        _write_page(html, found, ours, theirs)
    if as_json:
        print_json(comparison_body(Explanation(found, 0, ours, theirs)).model_dump())
    else:
        _print(found, ours.text)


def _source(name: str, loaded: Loaded, directory: DataDirectory | None) -> EncodedText:
    """Read a file and encode it, or find a stored document with its vectors."""
    if directory is None or not name.startswith(STORED):
        document = read_document(Path(name))
        return _encoded(loaded, None, document.title or Path(name).name, document.text)
    document_id = name.removeprefix(STORED)
    stored = add_stored_blocks(directory, list(find_stored(directory, [document_id]).values()))
    if not stored:
        raise DocumentNotFoundError(document_id)
    (found,) = stored
    if found.blocks is None:  # it was stored without them
        return _encoded(loaded, document_id, found.title, found.text)
    return found


def _encoded(loaded: Loaded, document_id: str | None, title: str, text: str) -> EncodedText:
    sentences = loaded.tokenizer(text)
    encoded = loaded.encoder.encode([sentences])
    blocks = block_vectors_of(sentences, encoded.block_vectors[0])
    vector = encoded.document_vectors[0]
    return EncodedText(
        text=text,
        title=title,
        vector=vector,
        receipt=sentences.receipt,
        blocks=blocks,
        document_id=document_id,
    )


def _space(loaded: Loaded, directory: DataDirectory | None) -> AlignmentSpace:
    """Return the space to align blocks in: of the collection, or else of the checkpoint."""
    used = None if directory is None else directory.store.alignment.space()
    return open_space(loaded.checkpoint) if used is None else used.space


def _compare(
    loaded: Loaded, data: Path, space: AlignmentSpace, left: EncodedText, right: EncodedText
) -> Comparison:
    ours, theirs = (to_comparable(loaded.checkpoint.language, one) for one in (left, right))
    calibrator = open_calibrator(loaded.checkpoint, data, loaded.encoder.adapter)
    worth = PairWorth(calibrator, read_fusion(loaded.checkpoint), space, ours)
    return compare_texts(ours, theirs, probability=worth.probability(theirs))


def _write_page(path: Path, found: Comparison, left: EncodedText, right: EncodedText) -> None:
    titles = [one.title or one.document_id or "" for one in (left, right)]
    page = render_report(found, titles[0], left.text, titles[1], right.text)
    path.write_text(page, encoding="utf-8")
    console.print(f"{path}: written")


def _print(found: Comparison, left: str) -> None:
    """Print the relation with its evidence, and a table of the largest passages."""
    out = Console(markup=False, highlight=False)
    chance = "" if found.probability is None else f", probability {found.probability:.2f}"
    out.print(f"{found.relation} (score {found.score:.4f}{chance})")
    for sentence in found.evidence:
        out.print(f"  {sentence}")
    if not found.passages:
        return
    table = Table("kind", "score", "left", "right", "begins", box=None)
    for passage in _largest(found):
        excerpt = printable(" ".join(left[slice(*passage.left)][: 2 * _EXCERPT].split())[:_EXCERPT])
        places = (f"{span.start}-{span.end}" for span in (passage.left, passage.right))
        table.add_row(passage.kind, f"{passage.score:.2f}", *places, excerpt)
    out.print(table)
    if len(found.passages) > _ROWS:
        out.print(f"and {len(found.passages) - _ROWS} smaller passages")


def _largest(found: Comparison) -> list[AlignedPassage]:
    by_size = sorted(found.passages, key=lambda one: one.left.start - one.left.end)
    return sorted(by_size[:_ROWS], key=lambda one: one.left)
