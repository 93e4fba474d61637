"""An experiment on the disk: its folder, the recipes that it writes, its finished cells.

plan.json         what the experiment is of; another one is never written into its folder
recipes/          the recipes of every checkpoint, run and pretraining
result.json, table.md, by-tokens-read.svg
work/             can be deleted after the end: starts, block vectors, runs, vectors
work/cells/       one JSON file for each finished step, written atomically
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.models.plan import Plan, PlannedModel, recipe_of
from encoder.atomic_files import write_atomically
from evaluation.judgements import PARTS, read_pairs, read_splits
from index.errors import CorpusError
from training.data.files import CorpusFiles, find_corpus_files, part_in_name
from training.data.pair_files import read_labelled_pairs
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
        steps: of the optimiser; 0 of a model that is measured as it begins.
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
class Experiment:
    """What to compare, on what, and where to.

    Attributes:
        plan: all models, rates and seeds.
        models: those of the plan that are compared; the first is the reference.
        files: the corpus, with pairs, and with links and splits if retrieval is measured.
        bert: folder of the BERT checkpoint that every model starts from.
        output: the folder to write.
        blocks: the folder that keeps block vectors.
        texts: corpora of pretraining, besides the training part of the corpus.
        allow_shared: as of a `TrainingJob`.
    """

    plan: Plan
    models: tuple[PlannedModel, ...]
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
    def pretraining_files(self) -> tuple[CorpusFiles, ...]:
        """The corpora of pretraining; pairs of the first only say which documents are held out.

        Those that share documents need not hold out any: their texts are read without them, so that
        a tenth is held out.
        """
        files = self.files
        if self.allow_shared and files.splits is None:
            alone = CorpusFiles(_lines_of(files.corpus)[0])
        else:
            alone = CorpusFiles(files.corpus, pairs=files.pairs, splits=files.splits)
        return (alone, *self.texts)

    def start(self, model: PlannedModel, seed: int, *, pretrained: bool = False) -> Path:
        """Return the checkpoint that a model starts from."""
        name = f"{model.key}-pretrained" if pretrained else model.key
        return self.work / "starts" / f"{name}-seed-{seed}"

    def recipe(self, name: str) -> Path:
        """Return the recipe of a run, a pretraining or the creation of a checkpoint."""
        return self.output / "recipes" / f"{name}.toml"

    def run_folder(self, name: str) -> Path:
        """Return the folder of the state and the best weights of a run or a pretraining."""
        return self.work / "runs" / name


def find_files(corpus: Path, *, allow_shared: bool) -> CorpusFiles:
    """Find the files of a corpus, and check that they have what is measured."""
    if not corpus.is_dir():
        raise CorpusError(f"{corpus}: is no folder")
    files = find_corpus_files(corpus)
    if files.qrels and files.splits is None:
        raise CorpusError(f"{corpus}: has no splits (splits.tsv next to corpus.jsonl)")
    if files.splits:
        present = set(read_splits(files.splits).values())
        for part in PARTS:
            if part not in present:
                raise CorpusError(f"{files.splits}: no document is in {part!r}")
    found = {part_in_name(path): path for path in files.pairs}
    for part in ("valid", "test"):
        if part not in found:
            raise CorpusError(f"{corpus}: has no pairs.{part}.jsonl")
        if len({pair.label for pair in read_pairs(found[part])}) < 2:
            raise CorpusError(f"{found[part]}: all pairs have the same label")
    read_labelled_pairs(files, allow_shared=allow_shared)
    return files


def find_texts(corpus: Path) -> CorpusFiles:
    """Find the files of more texts for pretraining, of which links and pairs are not read."""
    if not _lines_of(corpus):
        raise CorpusError(f"{corpus}: is no JSON Lines file, and has no corpus.jsonl")
    files = find_corpus_files(corpus)
    return CorpusFiles(files.corpus, splits=files.splits)


def check_labels(experiment: Experiment) -> None:
    """Check that the corpus has the links or pairs that the models learn from."""
    files = experiment.files
    recipes = [recipe_of(experiment.plan, model) for model in experiment.models]
    learned = {
        what
        for recipe in recipes
        for objective in recipe.objectives
        for what in (objective.kind, objective.parameters.get("groups"))
    }
    if "links" in learned and files.qrels is None:
        raise CorpusError(
            f"{files.corpus}: has no links (qrels.tsv next to corpus.jsonl), which the plan learns "
            "from"
        )
    if "pairs" in learned and not any(part_in_name(path) == "train" for path in files.pairs):
        raise CorpusError(f"{files.corpus}: has no pairs.train.jsonl")


def open_output(experiment: Experiment) -> None:
    """Make the folders of an experiment, and note what it is of.

    Raises:
        TrainingError: the folder is of another experiment, or of something else.
    """
    facts = _facts(experiment)
    output = experiment.output
    _check_output(output, facts)
    for folder in ("recipes", "work/cells", "work/vectors"):
        (output / folder).mkdir(parents=True, exist_ok=True)
    content = {"fingerprint": fingerprint(facts), "facts": facts}
    write_atomically(output / PLAN, json.dumps(content, indent=1, sort_keys=True) + "\n")
    for model in experiment.models:
        write_atomically(experiment.recipe(f"{model.key}.create"), tomli_w.dumps(model.create))


def keep_cell(experiment: Experiment, name: str, make: Callable[[], Cell]) -> Cell:
    """Return a finished cell; one that is missing is made and written."""
    path = experiment.work / "cells" / f"{name}.json"
    if not path.exists():
        write_atomically(path, json.dumps(make(), indent=1) + "\n")
    try:
        cell: Cell = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TrainingError(f"{path}: is damaged: delete it") from error
    return cell


def fingerprint(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256, in hex, of what is JSON-serialisable."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _facts(experiment: Experiment) -> dict[str, Any]:
    """Return what decides the results, JSON-serialisable.

    The models that are chosen are not part of it: others may be added to a folder later.
    """
    return {
        "plan": experiment.plan.model_dump(mode="json"),
        "corpus": _digests(experiment.files),
        "bert": {name: _digest(experiment.bert / name) for name in BERT_FILES},
        "texts": [_digests(files) for files in experiment.texts],
        "allow_shared": experiment.allow_shared,
    }


def _check_output(output: Path, facts: Mapping[str, Any]) -> None:
    """Check that a folder is new or empty, or of this very experiment."""
    begun = {path.name for path in output.iterdir()} if output.is_dir() else set()
    # Folders without a plan are what a kill at the very start leaves.
    if not output.exists() or (output.is_dir() and begun <= {"recipes", "work", f"{PLAN}.partial"}):
        return
    try:
        kept = json.loads((output / PLAN).read_text(encoding="utf-8"))
        known = kept["facts"]
        intact = kept["fingerprint"] == fingerprint(known)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(f"{output}: exists already, and is no experiment") from error
    differing = [name for name, value in facts.items() if known.get(name) != value]
    if differing or not intact:
        raise TrainingError(
            f"{output}: is of another experiment: {', '.join(differing) or PLAN} differs. Name "
            "another folder"
        )


def _digests(files: CorpusFiles) -> dict[str, str]:
    given = [path for path in (files.qrels, files.splits, *files.pairs) if path is not None]
    return {path.name: _digest(path) for path in (*_lines_of(files.corpus), *given)}


def _lines_of(corpus: Path) -> list[Path]:
    """Return the files of the documents of a corpus, which is a file itself or a folder."""
    if corpus.is_file():
        return [corpus]
    return [path for end in (".jsonl", ".jsonl.gz") if (path := corpus / f"corpus{end}").is_file()]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
