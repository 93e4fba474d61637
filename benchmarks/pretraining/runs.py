"""The runs of the benchmark, each kept in a work folder: starts, pretraining, fine-tuning."""

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.pretraining.plan import (
    PRETRAINED,
    Size,
    blocks_of,
    creation,
    pretraining,
    tuning,
)
from benchmarks.pretraining.vocabulary import keep_vocabulary
from encoder.arrays import Float32
from encoder.atomic_files import replace_durably, write_atomically
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.export.create import Recipe, create_checkpoint
from encoder.models.architecture import EncoderModel
from index.progress import SilentProgress
from training.collate import Reader, encode_slices
from training.comparison.job import to_toml
from training.comparison.plan import fingerprint
from training.comparison.runs import keep_vectors
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import CorpusFiles, EncoderJob, find_corpus_files
from training.data.sampling import DocumentSlice, TrainingSource
from training.jobs.output import RUN, Trained
from training.jobs.train_encoder import read_tokens, run_training, sources_of
from training.progress import TrainingProgress
from training.recipe import parse_training_recipe
from training.run_files import CURVE, VALIDATION, load_last, read_curve
from training.trained_checkpoint import write_trained

Kept = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bench:
    """What the runs share.

    Attributes:
        size: of the benchmark.
        texts: corpora of pretraining.
        judged: the corpus of fine-tuning, with links, pairs and splits.
        work: the folder that keeps everything.
        report: called with a line about each run.
        progress: is notified of the steps of runs.
    """

    size: Size
    texts: tuple[Path, ...]
    judged: Path
    work: Path
    report: Callable[[str], object]
    progress: TrainingProgress


@dataclass(frozen=True, slots=True)
class Tuning:
    """One fine-tuned model.

    Attributes:
        architecture: of it.
        begins: `RANDOM` or `PRETRAINED`.
        seed: of batches and dropout, and of random weights.
    """

    architecture: str
    begins: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.architecture}-{self.begins}-seed-{self.seed}"


def open_work(work: Path, size: Size, texts: Sequence[Path], judged: Path) -> None:
    """Make the work folder, or check that it is of this very benchmark.

    Raises:
        ValueError: it is of other sizes or other data; names what differs.
        OSError: it cannot be written.
    """
    files = find_corpus_files(judged)
    given = [path for path in (files.qrels, files.splits, *files.pairs) if path is not None]
    facts = {
        "size": asdict(size),
        "texts": {path.name: path.stat().st_size for path in texts},
        "judged": {path.name: path.stat().st_size for path in given},
    }
    facts = json.loads(json.dumps(facts))
    path = work / "facts.json"
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))
        differing = [name for name, value in facts.items() if known.get(name) != value]
        if differing:
            raise ValueError(f"{work}: is of another run: {', '.join(differing)} differs")
        return
    work.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(facts, indent=1) + "\n")


def open_start(bench: Bench, architecture: str, seed: int) -> Checkpoint:
    """Return a checkpoint of random weights, made if it is missing; its graphs are not exported."""
    directory = bench.work / architecture / f"start-seed-{seed}"
    size = bench.size

    def make(partial: Path) -> None:
        vocabulary = keep_vocabulary(
            bench.work / "vocabulary", bench.texts, size.vocabulary_documents, size.vocabulary
        )
        recipe = Recipe.model_validate(creation(architecture, size))
        create_checkpoint(recipe, str(vocabulary), partial, seed=seed)

    return _keep_checkpoint(directory, make)


def pretrain(bench: Bench, architecture: str) -> Checkpoint:
    """Return the pretrained checkpoint: trained, resumed or opened."""
    start = open_start(bench, architecture, bench.size.seeds[0])

    def make(partial: Path) -> None:
        data, sources = read_texts(bench, architecture)
        table = pretraining(architecture, bench.size)
        trained = _run(bench, f"{architecture}-pretraining", table, start, data, sources)
        write_trained(trained.model, trained.channel, start, partial, f"{architecture}-pretrained")

    return _keep_checkpoint(bench.work / architecture / "pretrained", make)


def read_texts(
    bench: Bench, architecture: str
) -> tuple[tuple[TrainingCorpus, ...], list[TrainingSource]]:
    """Cut the texts of pretraining into blocks, once, and return what a run samples of them."""
    files = [CorpusFiles(path) for path in bench.texts]
    table = pretraining(architecture, bench.size)
    return _read(bench, architecture, files, table)


def read_judged(bench: Bench, architecture: str) -> tuple[TrainingCorpus, list[TrainingSource]]:
    """Cut the corpus of fine-tuning into blocks, once, and return what a run samples of it."""
    table = tuning(architecture, bench.size, bench.size.seeds[0])
    (data,), sources = _read(bench, architecture, [find_corpus_files(bench.judged)], table)
    return data, sources


def tune(bench: Bench, one: Tuning, data: TrainingCorpus, sources: list[TrainingSource]) -> Kept:
    """Fine-tune a model, or return what was kept of it: its two validations, and seconds."""
    path = bench.work / "tuned" / f"{one.name}.json"
    if not path.exists():
        report = _tuned(bench, one, data, sources).report
        curve = read_curve(_folder(bench, one.name) / RUN / CURVE)
        before, after = (record[VALIDATION] for record in curve if VALIDATION in record)
        found = {"figure": report.figure, "before": before, "after": after}
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**asdict(one), **found, **took(bench, one.name)}
        write_atomically(path, json.dumps(content) + "\n")
    kept: Kept = json.loads(path.read_text(encoding="utf-8"))
    return kept


def vectors_of(
    bench: Bench,
    one: Tuning,
    data: TrainingCorpus,
    sources: list[TrainingSource],
    rows: Sequence[int],
) -> Float32:
    """Return the document vectors [D, dimension] of D rows of the corpus, by a fine-tuned model.

    The weights after the last step count, whatever validation says, so that all models have the
    same training.
    """

    def make() -> Float32:
        bench.report(f"{one.name}: encoding {len(rows)} documents")
        model: EncoderModel = _tuned(bench, one, data, sources).model
        own = {f"encoder.{name}": parameter for name, parameter in model.named_parameters()}
        load_last(_folder(bench, one.name) / RUN, own)
        blocks = blocks_of(one.architecture, bench.size)
        start = _start_of(bench, one)
        reader = Reader([data.encoded.archive], start, blocks, trained_blocks=blocks)
        parts = [DocumentSlice(0, int(data.encoded.rows[row])) for row in rows]
        return encode_slices(model.eval(), reader, parts, from_tokens=True)

    folder = bench.work / "vectors"
    folder.mkdir(exist_ok=True)
    return keep_vectors(folder / f"{one.name}.npy", make)


def curve_of(bench: Bench, architecture: str) -> list[dict[str, Any]]:
    """Return the curve of the pretraining of an architecture, one record for each step."""
    return read_curve(_folder(bench, f"{architecture}-pretraining") / RUN / CURVE)


def took(bench: Bench, name: str) -> Mapping[str, float]:
    """Return the seconds of the call that finished a run, by the clock and of the processor."""
    kept: Mapping[str, float] = json.loads(_seconds(bench, name).read_text(encoding="utf-8"))
    return kept


def _tuned(
    bench: Bench, one: Tuning, data: TrainingCorpus, sources: list[TrainingSource]
) -> Trained:
    table = tuning(one.architecture, bench.size, one.seed)
    return _run(bench, one.name, table, _start_of(bench, one), (data,), sources)


def _start_of(bench: Bench, one: Tuning) -> Checkpoint:
    if one.begins == PRETRAINED:
        return pretrain(bench, one.architecture)
    return open_start(bench, one.architecture, one.seed)


def _run(
    bench: Bench,
    name: str,
    table: Mapping[str, Any],
    start: Checkpoint,
    data: Sequence[TrainingCorpus],
    sources: Sequence[TrainingSource],
) -> Trained:
    """Train, resume, or open what is trained already; note the seconds that it took."""
    folder, done = _folder(bench, name), _seconds(bench, name)
    folder.mkdir(parents=True, exist_ok=True)
    recipe = folder / "recipe.toml"
    write_atomically(recipe, to_toml(table))
    job = EncoderJob(
        recipe=recipe,
        start=start,
        files=[one.files for one in data],
        output=folder / "checkpoint",  # not written
        work=folder,
        precisions=[],
    )
    if not done.exists():
        bench.report(f"{name}: {table['steps']} steps")
    clock, processor = time.monotonic(), time.process_time()
    trained = run_training(job, data, sources, bench.progress)
    if not done.exists():
        seconds = {
            "seconds": time.monotonic() - clock,
            "cpu_seconds": time.process_time() - processor,
        }
        write_atomically(done, json.dumps(seconds) + "\n")
        bench.report(f"{name}: {seconds['seconds']:.0f} s")
    return trained


def _read(
    bench: Bench, architecture: str, files: Sequence[CorpusFiles], table: Mapping[str, Any]
) -> tuple[tuple[TrainingCorpus, ...], list[TrainingSource]]:
    start = open_start(bench, architecture, bench.size.seeds[0])
    names = [fingerprint({"corpus": str(one.corpus.resolve())})[:8] for one in files]
    folders = [bench.work / architecture / f"tokens-{name}" for name in names]
    read = [
        (one, read_tokens(one.corpus, folder, start, SilentProgress()))
        for one, folder in zip(files, folders, strict=True)
    ]
    data = read_training_data(read)
    # Of the texts and not of the blocks, so both architectures share them.
    lexical = [bench.work / f"neighbours-{name}" for name in names]
    recipe = parse_training_recipe(table)
    return data, sources_of(recipe, start, data, lexical, SilentProgress())


def _keep_checkpoint(directory: Path, make: Callable[[Path], None]) -> Checkpoint:
    if not directory.exists():
        partial = directory.with_name(directory.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.parent.mkdir(parents=True, exist_ok=True)
        make(partial)
        replace_durably(partial, directory)
    return load_checkpoint(directory)


def _folder(bench: Bench, name: str) -> Path:
    return bench.work / "runs" / name


def _seconds(bench: Bench, name: str) -> Path:
    return _folder(bench, name) / "seconds.json"
