"""A comparison on the disk: its folder, the recipes that it writes, its commands, finished cells.

plan.json         what the comparison is of; another one is never written into its folder
recipes/          the recipes of every checkpoint and run, which its commands name
result.json, table.md, by-tokens-read.svg, by-milliseconds.svg
work/             can be deleted after the end: starts, block vectors, runs, vectors
work/cells/       one JSON file for each finished step, written atomically
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.atomic_files import write_atomically
from training.comparison.plan import (
    Budget,
    Plan,
    PlannedModel,
    creation_table,
    fingerprint,
    training_table,
)
from training.data.files import CorpusFiles
from training.errors import TrainingError

PLAN, RESULT, TABLE = "plan.json", "result.json", "table.md"
BERT_FILES = ("config.json", "tokenizer.json", "model.safetensors")
Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One training of a model.

    Attributes:
        model: of the plan.
        rate: learning rate of its document level.
        seed: of weights and batches.
        steps: of the optimiser.
    """

    model: PlannedModel
    rate: float
    seed: int
    steps: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.model.key}-rate-{self.rate:g}-seed-{self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What to compare, on what, and where to.

    Attributes:
        plan: all models, rates and seeds.
        plan_file: its file.
        models: those of the plan that are compared; the first is the reference.
        budget: of each model.
        files: the corpus, with pairs, and with links and splits if retrieval is measured.
        bert: folder of the BERT checkpoint that every model starts from.
        output: the folder to write.
        blocks: the folder that keeps block vectors.
        texts: corpora of pretraining, beside the training part of the corpus.
        allow_shared: as of a `TrainingJob`.
    """

    plan: Plan
    plan_file: Path
    models: tuple[PlannedModel, ...]
    budget: Budget
    files: CorpusFiles
    bert: Path
    output: Path
    blocks: Path
    texts: tuple[CorpusFiles, ...] = ()
    allow_shared: bool = False

    @property
    def work(self) -> Path:
        """The folder of intermediate results."""
        return self.output / "work"

    @property
    def own_texts(self) -> CorpusFiles:
        """The corpus as pretraining reads it: its pairs only say which documents are held out.

        Those that share documents need not hold out any: their texts are read without them, so that
        a tenth is held out.
        """
        files = self.files
        if self.allow_shared and files.splits is None:
            return CorpusFiles(_lines_of(files.corpus)[0])
        return CorpusFiles(files.corpus, pairs=files.pairs, splits=files.splits)

    def start(self, model: PlannedModel, seed: int) -> Path:
        """Return the checkpoint that a model starts from."""
        return self.work / "starts" / f"{model.key}-seed-{seed}"

    def pretrained(self, model: PlannedModel) -> Path:
        """Return the pretrained checkpoint of a model that is pretrained."""
        return self.work / "starts" / f"{model.key}-pretrained"

    def pretraining_recipe(self, model: PlannedModel) -> Path:
        """Return the recipe of the pretraining of a model."""
        return self.output / "recipes" / f"{model.key}.pretraining.toml"

    def creation_recipe(self, model: PlannedModel) -> Path:
        """Return the recipe of the checkpoint that a model starts from."""
        return self.output / "recipes" / f"{model.key}.create.toml"

    def run_recipe(self, run: Run) -> Path:
        """Return the recipe of a run."""
        return self.output / "recipes" / f"{run.name}.toml"

    def run_folder(self, run: Run) -> Path:
        """Return the folder of the state and the best weights of a run."""
        return self.work / "runs" / run.name


def facts(job: Comparison) -> dict[str, Any]:
    """Return what decides the results of a comparison, JSON-serialisable.

    The models that are chosen are not part of it: others may be added to a folder later.

    Raises:
        OSError: a file cannot be read.
    """
    creation = {one.key: creation_table(job.plan_file, one) for one in job.plan.models}
    return {
        "plan": job.plan.model_dump(mode="json"),
        "creation": creation,
        "budget_seconds": job.budget.seconds,
        "budget_steps": job.budget.steps,
        "corpus": _digests(job.files),
        "bert": {name: _digest(job.bert / name) for name in BERT_FILES},
        "texts": [_digests(one) for one in job.texts],
        "allow_shared": job.allow_shared,
    }


def check_output(output: Path, of_job: Mapping[str, Any]) -> None:
    """Check that a folder is new or empty, or of this very comparison.

    Raises:
        TrainingError: it is something else; says what differs.
    """
    begun = f"{PLAN}.partial"  # all that a kill at the very start leaves
    if not output.exists() or (output.is_dir() and {p.name for p in output.iterdir()} <= {begun}):
        return
    try:
        kept = json.loads((output / PLAN).read_text(encoding="utf-8"))
        known = kept["facts"]
        intact = kept["fingerprint"] == fingerprint(known)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{output}: exists already, and is no comparison") from error
    differing = [name for name, value in of_job.items() if known.get(name) != value]
    if differing or not intact:
        raise TrainingError(
            f"{output}: is of another comparison: {', '.join(differing) or PLAN} differs. Name "
            "another folder"
        )


def open_output(job: Comparison) -> None:
    """Make the folders of a comparison, and note what it is of.

    Raises:
        TrainingError: as `check_output`.
        OSError: a file cannot be written.
    """
    of_job = facts(job)
    check_output(job.output, of_job)
    job.output.mkdir(parents=True, exist_ok=True)
    content = {"fingerprint": fingerprint(of_job), "facts": of_job}
    write_atomically(job.output / PLAN, json.dumps(content, indent=1, sort_keys=True) + "\n")
    for folder in ("recipes", "work/cells", "work/vectors"):
        (job.output / folder).mkdir(parents=True, exist_ok=True)
    for model in job.models:
        write_atomically(job.creation_recipe(model), to_toml(creation_table(job.plan_file, model)))


def write_run_recipe(job: Comparison, run: Run) -> Path:
    """Write the recipe of a run, and return its path.

    Raises:
        OSError: it cannot be written.
    """
    path = job.run_recipe(run)
    table = training_table(job.plan, run.model, rate=run.rate, seed=run.seed, steps=run.steps)
    write_atomically(path, to_toml(table))
    return path


def keep_cell(job: Comparison, name: str, make: Callable[[], Cell]) -> Cell:
    """Return a finished cell; one that is missing is made and written.

    Args:
        job: of the cell.
        name: of its file.
        make: makes it, JSON-serialisable.

    Raises:
        TrainingError: the file is damaged.
        OSError: it cannot be written.
    """
    path = job.work / "cells" / f"{name}.json"
    if not path.exists():
        write_atomically(path, json.dumps(make(), indent=1) + "\n")
    try:
        cell: Cell = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TrainingError(f"{path}: is damaged: delete it") from error
    return cell


def commands(job: Comparison, run: Run) -> list[str]:
    """Return the commands that make the checkpoint of a run again."""
    pretrains = run.model.pretraining is not None
    seed = job.plan.seeds[0] if pretrains else run.seed
    start = job.start(run.model, seed)
    create = ["lab", "create-checkpoint", job.creation_recipe(run.model), "--bert", job.bert]
    lines = [[*create, "--seed", seed, "-o", start]]
    shared = ["--allow-shared-documents"] if job.allow_shared else []
    if pretrains:
        texts = [part for one in (job.own_texts, *job.texts) for part in ("--corpus", one.corpus)]
        pretrain = ["lab", "train", job.pretraining_recipe(run.model), "--checkpoint", start]
        start = job.pretrained(run.model)
        # Only a start: whether int8 keeps its neighbours does not matter.
        lines.append([*pretrain, *texts, *shared, "-o", start, "--precision", "fp32"])
    train = ["lab", "train", job.run_recipe(run), "--checkpoint", start]
    corpus = ["--corpus", job.files.corpus, *shared]
    lines.append([*train, *corpus, "-o", job.output / f"{run.name}-checkpoint"])
    return [shlex.join(["longmatch", *map(str, one)]) for one in lines]


def to_toml(table: Mapping[str, Any]) -> str:
    """Return a table of a recipe as TOML: its values first, then its tables."""
    return "".join(_lines(table, ""))


def _lines(table: Mapping[str, Any], prefix: str) -> list[str]:
    lines, tables = [], []
    for name, value in table.items():
        if isinstance(value, Mapping):
            tables += [f"\n[{prefix}{name}]\n", *_lines(value, f"{prefix}{name}.")]
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            for one in value:
                tables += [f"\n[[{prefix}{name}]]\n", *_lines(one, f"{prefix}{name}.")]
        else:
            lines.append(f"{name} = {json.dumps(value, ensure_ascii=False)}\n")
    return lines + tables


def _digests(files: CorpusFiles) -> dict[str, str]:
    given = [path for path in (files.qrels, files.splits, *files.pairs) if path is not None]
    return {path.name: _digest(path) for path in (*_lines_of(files.corpus), *given)}


def _lines_of(corpus: Path) -> list[Path]:
    """Return the files of the documents of a corpus, which is one itself or a folder."""
    if corpus.is_file():
        return [corpus]
    return [path for end in (".jsonl", ".jsonl.gz") if (path := corpus / f"corpus{end}").is_file()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
