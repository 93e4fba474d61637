"""`longmatch`: the command line."""

import sys

import typer
from pydantic import ValidationError

from encoder.errors import EmptyTextError, EncoderError
from index.errors import DocumentError, IndexingError
from service.cli import (
    bench,
    calibration,
    checkpoints,
    corpora,
    data,
    datasets,
    reencoding,
    serving,
    training,
)
from service.cli.checks import OptionError
from service.cli.comparison import compare, pairs
from service.cli.evaluation import command as evaluation
from service.cli.feedback import tune
from service.cli.options import INPUT_SKIPPED, USAGE, console
from service.cli.progress import printable
from service.errors import ServiceError
from service.process import cap_malloc_threshold

app = typer.Typer(
    help="Find the documents that match a long document.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    corpora.index,
    serving.serve,
    corpora.match,
    corpora.families,
    pairs.pairs,
    compare.compare,
    corpora.embed,
    evaluation.evaluate,
    calibration.calibrate,
    calibration.fit_calibration,
    tune.tune,
    training.train,
    training.make_corpus,
    datasets.dataset,
    checkpoints.create_checkpoint,
    checkpoints.export,
    training.create_reranker,
    serving.demo,
    data.snapshot,
    data.restore,
    data.doctor,
    data.migrate,
    reencoding.reencode,
):
    app.command()(command)
app.command("train-reranker")(training.train_reranker_command)
app.add_typer(bench.app, name="bench")
app.add_typer(serving.keys, name="keys")


def main() -> None:
    """Run the command; an expected error is printed as one line on standard error."""
    cap_malloc_threshold()
    try:
        app()
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
