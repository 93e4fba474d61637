"""`longmatch`: the command line."""

import os
import sys
from collections import UserDict
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version as distribution_version
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from typer.core import TyperGroup

from encoder.errors import EmptyTextError, EncoderError
from index.document import printable
from index.errors import DocumentError, IndexingError
from service.cli.checks import OptionError
from service.cli.options import INPUT_SKIPPED, USAGE, console
from service.errors import ServiceError
from service.former import FORMER_COMMANDS, FORMER_OPTIONS
from service.settings import check_environment
from service.threads import cap_malloc_threshold

# Each command or group by its name, and where it is.
_PLACES: Mapping[str, str] = {
    "index": "service.cli.corpora:index",
    "delete": "service.cli.data:delete",
    "serve": "service.cli.serve:serve",
    "match": "service.cli.corpora:match",
    "compare": "service.cli.compare:compare",
    "families": "service.cli.corpora:families",
    "pairs": "service.cli.pairs:pairs",
    "evaluate": "service.cli.evaluate:evaluate",
    "tune": "service.cli.tune:tune",
    "snapshot": "service.cli.data:snapshot",
    "restore": "service.cli.data:restore",
    "doctor": "service.cli.data:doctor",
    "reencode": "service.cli.reencode:reencode",
    "mcp": "service.cli.mcp:mcp",
    "demo": "service.cli.corpora:demo",
    "settings": "service.cli.serve:settings",
    "keys": "service.cli.keys:keys",
    "lab": "service.cli.lab:lab",
}


class _Commands(UserDict[str, Any]):
    """The commands and groups by name; what one of them needs is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        module, attribute = self.data[name].split(":")
        app = found = getattr(import_module(module), attribute)
        if not isinstance(found, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command(name)(found)
        command = typer.main.get_command(app)
        command.name = name
        return command


class _Group(TyperGroup):
    """`longmatch` itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"commands": _Commands(_PLACES)})


def make_app() -> typer.Typer:
    """Make the application."""
    app = typer.Typer(
        cls=_Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
    )

    @app.callback(invoke_without_command=True)
    def longmatch(
        version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    ) -> None:
        """Find the documents that match a long document."""
        if version:
            typer.echo(f"longmatch {distribution_version('longmatch')}")
            raise typer.Exit

    return app


def main() -> None:
    """Run the command; an expected error is printed as one line on standard error."""
    cap_malloc_threshold()
    command, *words = [*sys.argv[1:], ""]
    if command in FORMER_COMMANDS:
        sys.exit(_fail(f"longmatch {command} {FORMER_COMMANDS[command]}", USAGE))
    for option in (word.partition("=")[0] for word in words if command != "lab"):
        if option in FORMER_OPTIONS:
            sys.exit(_fail(f"{option}: {FORMER_OPTIONS[option]}", USAGE))
    try:
        check_environment(os.environ)
        make_app()()
    except (EmptyTextError, DocumentError) as error:
        sys.exit(_fail(error, INPUT_SKIPPED))
    except OSError as error:
        reason = error.strerror or str(error)
        sys.exit(_fail(f"{error.filename}: {reason}" if error.filename else reason, USAGE))
    except (OptionError, EncoderError, IndexingError, ServiceError, ImportError) as error:
        sys.exit(_fail(error, USAGE))  # ImportError: an extra is missing or broken
    except ValidationError as error:
        first = error.errors()[0]
        sys.exit(_fail(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", USAGE))


def _fail(error: object, status: int) -> int:
    console.print(f"error: {printable(str(error))}", style="red")
    return status
