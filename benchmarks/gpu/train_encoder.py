"""Train the whole encoder in parts: the sentence level by alignment, the document level; evaluate.

    python -m benchmarks.gpu.train_encoder --bert FOLDER --corpus A --corpus B --test C \
        --work FOLDER --minutes 9

does what is left within so many minutes, then stops; the same command goes on, on another machine
too if the work folder is taken along. The exit status is 75 (EX_TEMPFAIL) while something is left,
0 when the tables are printed. It needs no GPU: with a small recipe it can be rehearsed on a CPU.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import ROOT

RECIPE = Path(__file__).with_name("align-links-large.toml")
START = ROOT / "encoder" / "recipes" / "smith-minilm-l6.toml"
_STOPPING_SECONDS = 60  # from the signal to the end of a command
_GATE_DOCUMENTS = 60


@dataclass(frozen=True, slots=True)
class Stage:
    """One command.

    Attributes:
        name: for the output.
        arguments: of `longmatch`.
        result: what it writes; there when it is done. What it prints, if it writes nothing else.
        printed: whether the result is what it prints.
    """

    name: str
    arguments: Sequence[str | Path]
    result: Path
    printed: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is trained and evaluated.

    Attributes:
        work: what is kept between the parts.
        bert: to begin with.
        architecture: a recipe of `longmatch lab create-checkpoint`.
        recipes: of `longmatch lab train`, for the sentence level and for the document level.
        corpora: folders to train on.
        tests: folders to evaluate on.
        precision: of the graphs.
    """

    work: Path
    bert: Path
    architecture: Path
    recipes: tuple[Path | str, Path | str]
    corpora: Sequence[Path]
    tests: Sequence[Path]
    precision: str


def stages(plan: Plan) -> Iterator[Stage]:
    """Yield what has to be done, in order."""
    start, aligned, trained = (plan.work / name for name in ("start", "aligned", "trained"))
    given = [part for folder in plan.corpora for part in ("--corpus", folder)]
    graphs = ("--precision", plan.precision)
    create = (
        "lab",
        "create-checkpoint",
        plan.architecture,
        "--bert",
        plan.bert,
        "-o",
        start,
        *graphs,
    )
    yield Stage("create the start", create, start)
    sentences, documents = plan.recipes
    exact = (*graphs, "--gate-documents", str(_GATE_DOCUMENTS))
    train = ("lab", "train", sentences, "--checkpoint", start, *given, "-o", aligned, *exact)
    yield Stage("train the sentence level", train, aligned)
    again = ("lab", "train", documents, "--checkpoint", aligned, *given, "-o", trained, *exact)
    yield Stage("train the document level", again, trained)
    for folder in plan.tests:
        corpus, qrels, splits = _files(folder)
        for checkpoint in (start, aligned, trained):
            name = f"{folder.name}-{checkpoint.name}"
            sentence_level = start if checkpoint == start else aligned
            blocks = plan.work / "blocks" / sentence_level.name / folder.name
            where = ("--blocks", blocks, "--checkpoint", checkpoint, "--baselines", "tfidf")
            evaluate = ("evaluate", corpus, qrels, "--split", splits, *where)
            yield Stage(f"evaluate {name}", evaluate, plan.work / f"{name}.txt", printed=True)


def _files(folder: Path) -> tuple[Path, Path, Path]:
    corpus = next(iter(sorted(folder.glob("corpus.jsonl*"))), folder / "corpus.jsonl")
    return corpus, folder / "qrels.tsv", folder / "splits.tsv"


def run(stage: Stage, deadline: float) -> bool:
    """Run a stage until it is done or the time is up; return whether it is done.

    At the deadline the command is interrupted, as a user would; it resumes when it is run again.

    Args:
        stage: what to run.
        deadline: by `time.monotonic`.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    if stage.result.exists():
        return True
    command = [str(Path(sys.executable).with_name("longmatch")), *map(str, stage.arguments)]
    partial = stage.result.with_name(f"{stage.result.name}.partial-output")
    with partial.open("w") as output, subprocess.Popen(command, stdout=output) as process:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            return False
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    if stage.printed:
        partial.replace(stage.result)
    else:
        partial.unlink()
    return True


def main(
    bert: Annotated[Path, typer.Option(help="A BERT to begin with, such as all-MiniLM-L6-v2.")],
    corpus: Annotated[list[Path], typer.Option(help="A folder to train on; repeatable.")],
    work: Annotated[Path, typer.Option(help="What is kept between the parts.")],
    test: Annotated[list[Path], typer.Option(help="A folder to evaluate on; repeatable.")] = [],  # noqa: B006
    architecture: Annotated[Path, typer.Option(help="A recipe of create-checkpoint.")] = START,
    recipe: Annotated[Path, typer.Option(help="For the sentence level.")] = RECIPE,
    document_recipe: Annotated[str, typer.Option(help="For the document level.")] = "general",
    precision: Annotated[str, typer.Option(help="Of the graphs.")] = "fp16",
    minutes: Annotated[float, typer.Option(min=0.01, help="Of this part.")] = 9.0,
) -> None:
    """Train and evaluate, or go on with it."""
    deadline = time.monotonic() + 60 * minutes
    work.mkdir(parents=True, exist_ok=True)
    recipes = (recipe, document_recipe)
    every = list(stages(Plan(work, bert, architecture, recipes, corpus, test, precision)))
    for stage in every:
        typer.echo(f"{stage.name}: {'done before' if stage.result.exists() else 'running'}")
        try:
            done = run(stage, deadline)
        except subprocess.CalledProcessError as error:
            typer.echo(f"{stage.name} failed", err=True)
            raise typer.Exit(error.returncode) from None
        if not done:
            typer.echo("the time is up: run the same command again to go on")
            raise typer.Exit(os.EX_TEMPFAIL)
    for stage in every:
        if stage.printed:
            typer.echo(f"\n{stage.name}\n{stage.result.read_text()}")


if __name__ == "__main__":
    typer.run(main)
