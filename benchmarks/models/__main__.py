"""Experiments on models: encoders from the same start, data and budget, measured side by side.

    python -m benchmarks.models PLAN CORPUS --bert FOLDER -o FOLDER

PLAN is a TOML file of models, rates, seeds and budgets, or the name of a shipped one. Every model
is pretrained with every seed where the plan says so, trained with each of its rates, then with the
best rate and every seed, and measured. If it is stopped, the same command resumes.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.common import commit, make_record, write_record
from benchmarks.models.experiment import (
    BERT_FILES,
    RESULT,
    TABLE,
    Cell,
    Experiment,
    Run,
    check_labels,
    find_files,
    find_texts,
    keep_cell,
    open_output,
)
from benchmarks.models.measure import (
    Truth,
    measure_lengths,
    read_truth,
    report_quality,
    word_systems,
)
from benchmarks.models.plan import PLANS, PlannedModel, read_plan
from benchmarks.models.runs import (
    DataReader,
    Prepared,
    choose_rate,
    drop_run,
    open_trained,
    open_training_start,
    pretrain,
    steps_of,
    train_run,
    vectors_of,
)
from benchmarks.models.table import BENCHMARK, draw, format_result
from encoder.atomic_files import write_atomically
from encoder.errors import EncoderError
from index.errors import CorpusError
from training.errors import TrainingError

INTERRUPTED = 130


def main(
    plan: Annotated[
        str, typer.Argument(help="A TOML file, or the name of one in benchmarks/models/plans.")
    ],
    corpus: Annotated[
        Path,
        typer.Argument(
            help="A folder of corpus.jsonl and pairs, and to measure retrieval qrels and splits."
        ),
    ],
    bert: Annotated[
        Path, typer.Option(help="Folder of the BERT checkpoint that every model starts from.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder of the result, and of the work.")
    ],
    models: Annotated[
        str | None, typer.Option(help="Keys of the plan, separated by commas; by default all.")
    ] = None,
    pretraining_corpus: Annotated[
        list[Path] | None,
        typer.Option(help="More texts for models that are pretrained; may be repeated."),
    ] = None,
    allow_shared_documents: Annotated[
        bool,
        typer.Option("--allow-shared-documents", help="Pairs of two parts may share documents."),
    ] = False,
    blocks: Annotated[
        Path | None,
        typer.Option(help="A folder to keep block vectors in; by default one in the output."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of training and encoding.")] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Write the result to benchmarks/results, too.")
    ] = False,
) -> None:
    """Run the experiment of a plan on a corpus; the same command resumes it."""
    source, console = commit(), Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    if threads:
        torch.set_num_threads(threads)
    shipped, texts = PLANS / f"{plan}.toml", pretraining_corpus or []
    try:
        read = read_plan(shipped if shipped.is_file() else Path(plan))
        experiment = Experiment(
            plan=read,
            models=read.choose(models and [key.strip() for key in models.split(",")]),
            files=find_files(corpus, allow_shared=allow_shared_documents),
            bert=bert,
            output=output,
            blocks=blocks or output / "work" / "blocks",
            texts=tuple(find_texts(path) for path in texts),
            allow_shared=allow_shared_documents,
        )
        result = run(experiment, console)
    except KeyboardInterrupt:
        console.print("stopped: the same command resumes")
        raise typer.Exit(INTERRUPTED) from None
    except (EncoderError, CorpusError) as error:
        console.print(f"error: {error}")
        raise typer.Exit(2) from error
    typer.echo((output / TABLE).read_text(encoding="utf-8"))
    if record:
        settings = {"plan": result["plan"], "budget": result["budget"]}
        write_record(make_record(BENCHMARK, source, settings, result))


def run(experiment: Experiment, console: Console) -> dict[str, Any]:
    """Run an experiment, or resume it; write result, table and plot."""
    for name in BERT_FILES:
        if not (experiment.bert / name).is_file():
            raise TrainingError(f"--bert: {experiment.bert / name}: there is no such file")
    if experiment.texts and all(model.pretraining is None for model in experiment.models):
        raise TrainingError("--pretraining-corpus: no model of the plan is pretrained")
    check_labels(experiment)
    open_output(experiment)
    try:
        with FileLock(experiment.work / "writer.lock", timeout=0):
            result = _measure_all(experiment, console)
    except Timeout as error:
        raise TrainingError(f"{experiment.output}: another process writes into it") from error
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    write_atomically(experiment.output / RESULT, text)
    write_atomically(experiment.output / TABLE, format_result(result))
    if experiment.plan.lengths:
        draw(result, experiment.output)
    return result


def _measure_all(experiment: Experiment, console: Console) -> dict[str, Any]:
    models = experiment.models
    read = DataReader(experiment, console)
    prepared = {model.key: read(model) for model in models}
    first = prepared[models[0].key]
    truth = read_truth(experiment.files, first)
    # Before any training: a budget that is too small ends the experiment.
    steps = {
        model.key: steps_of(experiment, model, prepared[model.key], console) for model in models
    }
    seeds = experiment.plan.seeds
    pretrained = {
        model.key: [pretrain(experiment, model, seed, console) for seed in seeds]
        for model in models
        if model.pretraining is not None
    }
    rows, vectors = {}, {}
    for model in models:
        chosen, row = _train_model(
            experiment, model, prepared[model.key], steps[model.key], truth, console
        )
        rows[model.key] = row | {"pretraining": pretrained.get(model.key, [])}
        vectors[model.name] = [
            vectors_of(experiment, run, prepared[model.key], console) for run in chosen
        ]
    words = word_systems(experiment.files.corpus, first.data.texts.ids, console)
    return {
        "plan": experiment.plan.name,
        "corpus": first.data.found.facts(),
        "reference": models[0].name,
        "budget": experiment.plan.budget.model_dump(),
        "models": rows,
        **report_quality(vectors, first, truth, words),
    }


def _train_model(
    experiment: Experiment,
    model: PlannedModel,
    prepared: Prepared,
    steps: int,
    truth: Truth,
    console: Console,
) -> tuple[list[Run], dict[str, Any]]:
    """Return the runs of the best rate, which the first seed chooses, and a row of the result."""
    seed = experiment.plan.seeds[0]
    tried = [
        train_run(experiment, Run(model, rate, seed, steps), prepared, console)
        for rate in model.rates
    ]
    chosen, trained = _train_seeds(experiment, model, prepared, tried, console)
    rate = chosen[0].rate
    for other in set(model.rates) - {rate}:
        drop_run(experiment, Run(model, other, seed, steps).name)

    def measure() -> Cell:
        opened = open_trained(experiment, chosen[0], prepared, console)
        start = open_training_start(experiment, chosen[0])
        lengths = experiment.plan.lengths
        return {"points": measure_lengths(opened, start, prepared, truth, lengths)}

    lengths = keep_cell(experiment, f"lengths-{model.key}", measure)
    archive = prepared.data.texts.archive
    return chosen, {
        "name": model.name,
        "rate": rate,
        "rate_is_at_an_end": len(model.rates) > 1 and rate in (model.rates[0], model.rates[-1]),
        "steps": steps,
        "tried": tried,
        "seeds": trained,
        "tokens_read": archive.mean_tokens(prepared.recipe.max_blocks),
        "by_tokens_read": lengths["points"],
        "reported": [reported.model_dump(mode="json") for reported in model.reported],
    }


def _train_seeds(
    experiment: Experiment,
    model: PlannedModel,
    prepared: Prepared,
    tried: Sequence[Cell],
    console: Console,
) -> tuple[list[Run], list[Cell]]:
    """Train every seed with the best rate; one that diverges with a seed counts as diverged."""
    left = list(tried)
    while True:
        rate = choose_rate(left, model) if model.rates else 0.0
        steps = int(tried[0]["steps"]) if tried else 0
        chosen = [Run(model, rate, seed, steps) for seed in experiment.plan.seeds]
        trained = [train_run(experiment, run, prepared, console) for run in chosen]
        if not any("diverged" in cell for cell in trained):
            return chosen, trained
        left = [cell for cell in left if cell["rate"] != rate]


if __name__ == "__main__":
    typer.run(main)
