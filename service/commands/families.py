"""The command about copies and versions: families."""

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from index.data_directory import STORE_FILE
from index.errors import StoreError
from index.sqlite_schema import read_space
from service.commands.common import DEFAULT_DATA, DataOption, console, opened, print_json
from service.console import printable


def families(
    data: DataOption = DEFAULT_DATA,
    limit: Annotated[int, typer.Option(min=1, help="How many, the largest first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the families of copies and versions in an index; a server may be running."""
    if not (data / STORE_FILE).is_file():
        raise StoreError(f"{data}: there is no data directory here")
    with opened(data, read_space(data / STORE_FILE), read_only=True) as directory:
        found = directory.store.families
        largest, (number, documents), pending = (
            found.largest(limit),
            found.totals(),
            found.pending(),
        )
    if as_json:
        counts = {"families": number, "documents": documents, "pending": pending}
        print_json({**counts, "largest": [asdict(one) for one in largest]})
        return
    table = Table("family", "documents", "different texts", "first id", box=None)
    for one in largest:
        shown = (one.number, one.documents, one.texts)
        table.add_row(*map(str, shown), printable(one.first))
    Console(markup=False).print(table)
    console.print(f"{number} families of {documents} documents; {pending} documents not looked at")
