"""Keep the result of `longmatch bench models` beside those of the other benchmarks.

    longmatch bench models CORPUS --bert FOLDER -o comparison
    python -m benchmarks.comparison.record comparison

Of the files that its commands name only the last part of the path is kept.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import commit, make_record, write_record
from training.comparison.table import table as comparison_table

_FOLDERS = re.compile(r"(?<=\s)/\S*/(?=[^/\s])")


def main(
    folder: Annotated[Path, typer.Argument(help="The output of longmatch bench models.")],
    source: Annotated[str | None, typer.Option(help="The commit that made it.")] = None,
) -> None:
    """Write the record of a comparison."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for one in result["models"].values():
        one["commands"] = [
            [_FOLDERS.sub("", line) for line in commands] for commands in one["commands"]
        ]
    settings = {"plan": result["plan"], "budget": result["budget"]}
    record = make_record(
        f"models-{result['corpus']['corpus']}", source or commit(), settings, result
    )
    typer.echo(table(record))
    write_record(record)


def table(record: Mapping[str, Any]) -> str:
    """Format the record as Markdown."""
    return comparison_table(record["results"])


if __name__ == "__main__":
    typer.run(main)
