"""`longmatch`: the command line."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer
from pydantic import ValidationError

from encoder.errors import EmptyTextError, EncoderError
from index.errors import DocumentError, IndexingError
from service.cli.checks import OptionError
from service.cli.options import INPUT_SKIPPED, USAGE, console
from service.cli.progress import printable
from service.errors import ServiceError
from service.threads import cap_malloc_threshold

# Each command by its name, and where it is. A process imports the modules of its own command alone:
# with those of all, most commands take a third longer to start.
_COMMANDS: Mapping[str, str] = {
    "index": "service.cli.corpora:index",
    "serve": "service.cli.serving.serve:serve",
    "match": "service.cli.corpora:match",
    "families": "service.cli.corpora:families",
    "pairs": "service.cli.comparison.pairs:pairs",
    "compare": "service.cli.comparison.compare:compare",
    "embed": "service.cli.corpora:embed",
    "evaluate": "service.cli.evaluation.command:evaluate",
    "calibrate": "service.cli.calibration:calibrate",
    "fit-calibration": "service.cli.calibration:fit_calibration",
    "tune": "service.cli.feedback.tune:tune",
    "train": "service.cli.training:train",
    "make-corpus": "service.cli.training:make_corpus",
    "dataset": "service.cli.datasets:dataset",
    "create-checkpoint": "service.cli.checkpoints:create_checkpoint",
    "export": "service.cli.checkpoints:export",
    "create-reranker": "service.cli.training:create_reranker",
    "demo": "service.cli.serving.demo:demo",
    "snapshot": "service.cli.data:snapshot",
    "restore": "service.cli.data:restore",
    "doctor": "service.cli.data:doctor",
    "reencode": "service.cli.reencoding:reencode",
    "train-reranker": "service.cli.training:train_reranker_command",
}
_GROUPS: Mapping[str, str] = {
    "keys": "service.cli.serving.keys:keys",
}


def make_app(asked: str | None = None) -> typer.Typer:
    """Make the application: of the command or group `asked` if there is one, else of all."""
    made = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @made.callback()
    def longmatch() -> None:
        """Find the documents that match a long document."""

    alone = asked in _COMMANDS or asked in _GROUPS
    for name, place in _COMMANDS.items():
        if not alone or name == asked:
            made.command(name)(_find(place))
    for name, place in _GROUPS.items():
        if not alone or name == asked:
            made.add_typer(_find(place), name=name)
    return made


def _find(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)


def main() -> None:
    """Run the command; an expected error is printed as one line on standard error."""
    cap_malloc_threshold()
    try:
        make_app(sys.argv[1] if len(sys.argv) > 1 else None)()
    except (EmptyTextError, DocumentError) as error:
        sys.exit(_fail(error, INPUT_SKIPPED))
    except (OptionError, EncoderError, IndexingError, ServiceError, OSError) as error:
        sys.exit(_fail(error, USAGE))
    except ImportError as error:  # an extra is missing, or its installation is broken
        sys.exit(_fail(error, USAGE))
    except ValidationError as error:
        first = error.errors()[0]
        sys.exit(_fail(f"{'.'.join(map(str, first['loc']))}: {first['msg']}", USAGE))


def _fail(error: object, status: int) -> int:
    console.print(f"error: {printable(str(error))}", style="red")
    return status
