"""Tables 2 to 7 of the Match-Ignition paper: every row a reranker that is trained by itself.

    longmatch lab dataset cnse same_event_doc_pair.txt -o cnse
    python -m benchmarks.papers.match_ignition cnse --bert bert-base-chinese --work WORK

The same command resumes; finished rows are kept in WORK. Accuracy and F1 of all test pairs, at the
threshold that is best on the validation pairs, and the processor time of a batch on one thread.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import commit, make_record, write_record
from benchmarks.papers.match_ignition_rows import BENCHMARK, ROWS, Row, table
from benchmarks.quality.match_ignition import Change, measure_cell, sample_pairs
from encoder.atomic_files import replace_durably, write_atomically
from encoder.export.create import RerankerRecipe, create_reranker, read_reranker_recipe
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from index.progress import SilentProgress
from training.comparison.plan import ENCODER_RECIPES
from training.data.files import CorpusFiles, RerankJob, find_corpus_files
from training.data.pair_files import check_pair_files
from training.data.rerank_pairs import check_rerank_files
from training.jobs.train_reranker import train_reranker
from training.progress import SilentTrainingProgress
from training.recipe import RECIPES

PLAN = "plan.json"


def main(
    corpus: Annotated[Path, typer.Argument(help="A folder of longmatch lab dataset.")],
    bert: Annotated[Path, typer.Option(help="Folder of the BERT that every row starts from.")],
    work: Annotated[Path, typer.Option(help="Keeps the rows.")],
    rows: Annotated[str, typer.Option(help="Keys, separated by commas.")] = ",".join(ROWS),
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of each training; by default those for CNSE.")
    ] = None,
    start: Annotated[Path, typer.Option(help="Recipe of the start.")] = (
        ENCODER_RECIPES / "match-ignition-paper.toml"
    ),
    recipe: Annotated[Path, typer.Option(help="Recipe of the training.")] = (
        RECIPES / "rerank-paper.toml"
    ),
) -> None:
    """Train and measure the rows of the tables."""
    keys = [key.strip() for key in rows.split(",")]
    for key in keys:
        if key not in ROWS:
            raise typer.BadParameter(f"{key!r} is none of {', '.join(ROWS)}", param_hint="--rows")
    source, files = commit(), find_corpus_files(corpus)
    check_rerank_files([files], given=True)
    check_pair_files(files, allow_shared=True)
    open_work(work, files, bert, [start, recipe], steps)
    made = read_reranker_recipe(start)
    results = {}
    for key in keys:
        typer.echo(f"{key}: {ROWS[key].name}", err=True)
        trained = train_row(ROWS[key], work / key, made, bert, recipe, files, steps)
        results[key] = measure_row(trained, work / key, corpus)
    pairs = len(sample_pairs(corpus, None, "test"))
    settings = {"corpus": corpus.name, "pairs": pairs, "steps": steps, "precision": "fp32"}
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    write_record(record)


def open_work(
    work: Path, files: CorpusFiles, bert: Path, recipes: list[Path], steps: int | None
) -> None:
    """Make the folder of the work, or check that it is of the same data, recipes and steps.

    Raises:
        typer.BadParameter: it is of others.
    """
    read = [*recipes, bert / "model.safetensors", *files.pairs]
    read += [path for path in sorted(files.corpus.glob("corpus.jsonl*")) if path.is_file()]
    facts: dict[str, Any] = {path.name: _digest(path) for path in read} | {"steps": steps}
    work.mkdir(parents=True, exist_ok=True)
    if not (work / PLAN).exists():
        write_atomically(work / PLAN, json.dumps(facts, indent=1) + "\n")
    known = json.loads((work / PLAN).read_text(encoding="utf-8"))
    differing = sorted(name for name in facts | known if facts.get(name) != known.get(name))
    if differing:
        raise typer.BadParameter(
            f"{work}: is of other work: {', '.join(differing)} differs", param_hint="--work"
        )


def changed(recipe: RerankerRecipe, row: Row) -> RerankerRecipe:
    """Return the recipe of the start of a row."""
    pair, model = recipe.pair | dict(row.pair), recipe.model | dict(row.model)
    return recipe.model_copy(update={"pair": pair, "model": model})


def train_row(
    row: Row,
    folder: Path,
    start: RerankerRecipe,
    bert: Path,
    recipe: Path,
    files: CorpusFiles,
    steps: int | None,
) -> RerankerCheckpoint:
    """Train a row, resume its training, or open what is trained already."""
    trained, begun = folder / "trained", folder / "start"
    if trained.exists():
        return load_reranker_checkpoint(trained)
    if not begun.exists():
        shutil.rmtree(partial := folder / "start.partial", ignore_errors=True)
        create_reranker(changed(start, row), str(bert), partial)
        replace_durably(partial, begun)
    job = RerankJob(
        recipe=recipe,
        start=load_reranker_checkpoint(begun),
        files=[files],
        output=trained,
        work=folder / "training",
        precisions=[],  # words that are dropped at random have no graph
        steps=steps,
        allow_shared=True,
    )
    return train_reranker(job, SilentProgress(), SilentTrainingProgress())


def measure_row(trained: RerankerCheckpoint, folder: Path, corpus: Path) -> dict[str, float]:
    """Measure a trained row on all test pairs, once."""
    kept = folder / "cell.json"
    if not kept.exists():
        test, valid = (sample_pairs(corpus, None, part) for part in ("test", "valid"))
        cell = measure_cell(Change(trained, filtered=True), test, valid)  # as it was trained
        write_atomically(kept, json.dumps(cell) + "\n")
    measured: dict[str, float] = json.loads(kept.read_text(encoding="utf-8"))
    return measured


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    typer.run(main)
