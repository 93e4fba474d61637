"""The command that compares two documents: compare."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from encoder.alignment.space import open_space
from encoder.comparison.result import Comparison, Difference, Span
from encoder.encoder import Encoder
from index.alignment.alignment_index import AlignableDocuments, SpaceInUse
from index.corpus.reader import read_document
from index.directory.data_directory import DataDirectory
from index.document import printable
from index.lexical.scoring import rows_of_texts, term_cosines
from index.progress import SilentProgress
from index.search.calibrate import open_scoring
from index.search.records import Mode
from service.cli import checks, opening, options
from service.cli.opening import load, opened
from service.cli.options import print_json, results, say
from service.compare.logic import Explanation, compare_prepared, lexical_scores
from service.compare.schemas import comparison_json, differences_json
from service.encode import (
    EncodedText,
    StoredQuery,
    add_stored_blocks,
    encode_alone,
    find_all_stored,
    to_comparable,
)
from service.web.report import render_report

STORED = "id:"
_EXCERPT = 60  # characters of a passage in the table
_ROWS = 20

SideArgument = Annotated[str, typer.Argument(help="A file, or id:… of a document in --data.")]


def compare(
    left: SideArgument,
    right: SideArgument,
    data: options.DataOption = options.DEFAULT_DATA,
    as_json: options.JsonOption = False,
    differences: Annotated[
        bool, typer.Option("--differences", help="Say what each has that the other lacks.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the comparison as an HTML page here.")
    ] = None,
    encoder: options.EncoderOption = None,
) -> None:
    """Compare two documents, by the collection in --data if it exists; a server may be running."""
    for name, argument in ((left, "LEFT"), (right, "RIGHT")):
        if not name.startswith(STORED):
            opening.check_document(Path(name), argument)
    known = opening.has_documents(data)
    if any(name.startswith(STORED) for name in (left, right)):
        opening.check_data_directory(data)
    if html:
        checks.output_file(html, "--html")
    loaded = load(encoder, data=data if known else None)
    collection = opened(data, loaded.checkpoint, read_only=True) if known else nullcontext()
    with collection as directory:
        ours, theirs = (_source(name, loaded, directory) for name in (left, right))
        found, calibration = _compare(
            loaded, data, directory, ours, theirs, differences=differences or html is not None
        )
    if html:
        titles = [
            side.title or Path(name.removeprefix(STORED)).name
            for side, name in ((ours, left), (theirs, right))
        ]
        page = render_report(found, titles[0], ours.text, titles[1], theirs.text)
        html.write_text(page, encoding="utf-8")
        say(f"{html}: written")
    if as_json:
        body = comparison_json(Explanation(found, 0, ours, theirs))
        if differences and found.differences is not None:
            body["differences"] = differences_json(found.differences, ours.text, theirs.text)
        print_json({**body, "calibration": calibration})
    else:
        _print(found, ours.text)
        if differences and found.differences is not None:
            _print_differences("left", "right", found.differences.left, ours.text)
            _print_differences("right", "left", found.differences.right, theirs.text)


def _source(name: str, loaded: Encoder, directory: DataDirectory | None) -> EncodedText:
    """Read a file and encode it, or find a stored document with its vectors."""
    if directory is None or not name.startswith(STORED):
        document = read_document(Path(name))
        return encode_alone(loaded, document.text, document.title)
    wanted = StoredQuery(None, name.removeprefix(STORED))
    (found,) = add_stored_blocks(directory, find_all_stored(directory, [wanted]))
    if found.blocks is None:  # it was stored without them
        return encode_alone(loaded, found.text, found.title, found.document_id)
    return found


def _compare(
    loaded: Encoder,
    data: Path,
    directory: DataDirectory | None,
    left: EncodedText,
    right: EncodedText,
    *,
    differences: bool,
) -> tuple[Comparison, str | None]:
    """Return the comparison, and the version of the calibration.

    Without a data directory the space is that of the checkpoint, and the two texts are a collection
    of their own.
    """
    lexical: tuple[Mode, float | None]
    if directory is None:
        alignable: AlignableDocuments | None = AlignableDocuments(
            SpaceInUse(0, open_space(loaded.checkpoint)), {}
        )
        rows = rows_of_texts([left.text, right.text], [left.title, right.title])
        (words,) = term_cosines(rows, np.array([[0, 1]]), SilentProgress()).tolist()
        lexical = ("hybrid", words)
    else:
        alignable = directory.store.alignment.read([left.vector_id, right.vector_id])
        (lexical,) = lexical_scores(directory.store, left, [right])
    language = loaded.checkpoint.language
    reader = loaded.section_reader
    ours, theirs = (to_comparable(language, side, alignable, reader) for side in (left, right))
    documents = 0 if directory is None else len(directory.store)
    scoring = open_scoring(loaded.checkpoint, data, documents)
    found = compare_prepared(scoring, ours, theirs, lexical, reader, differences=differences)
    return found, scoring.version


def _print(found: Comparison, left: str) -> None:
    """Print the relation with its evidence, and the largest passages."""
    pair = found.pair
    chance = "" if pair.probability is None else f", probability {pair.probability:.2f}"
    results.print(f"{found.relation} (score {pair.score:.4f}{chance})")
    for sentence in found.evidence:
        results.print(f"  {sentence}")
    if found.passages:
        _print_passages(found, left)


def _print_differences(here: str, there: str, found: Sequence[Difference], text: str) -> None:
    """Print every block that a text has and the other lacks."""
    results.print(f"{len(found)} blocks that the {here} text has and the {there} text lacks")
    for difference in found:
        words = " … ".join(" ".join(text[slice(*span)].split()) for span in difference.words)
        results.print(f"  {difference.kind}, {_place(difference.span)}: {printable(words)}")


def _print_passages(found: Comparison, left: str) -> None:
    table = Table("kind", "score", "left", "right", "begins", box=None)
    by_size = sorted(found.passages, key=lambda passage: passage.left.start - passage.left.end)
    for passage in sorted(by_size[:_ROWS], key=lambda passage: passage.left):
        places = (_place(span) for span in (passage.left, passage.right))
        excerpt = printable(" ".join(left[slice(*passage.left)].split())[:_EXCERPT])
        table.add_row(passage.kind, f"{passage.score:.2f}", *places, excerpt)
    results.print(table)
    if len(found.passages) > _ROWS:
        results.print(f"and {len(found.passages) - _ROWS} smaller passages")


def _place(span: Span) -> str:
    return f"{span.start}-{span.end}"
