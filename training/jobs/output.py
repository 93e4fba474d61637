"""A trained model as a checkpoint."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import Tokenizer

from encoder.checkpoint import (
    CONFIG,
    HASHED_TERMS,
    TERMS,
    TOKENIZER,
    Checkpoint,
    load_checkpoint,
    read_verified,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.models.architecture import EncoderModel, ReadsTerms
from encoder.models.weights import save_weights
from encoder.terms.feature_hashing import write_hashed_terms
from encoder.terms.term_channel import TermChannel
from encoder.terms.term_table import write_term_table
from training.data.files import EncoderJob, Start, TrainingJob
from training.objectives import Vocabulary
from training.term_channel import fold_projection

if TYPE_CHECKING:
    from encoder.export.export import Gate
    from training.recipe import TrainingRecipe

RUN = "run"  # in the work directory: state, best weights and curve of the loop
REPORT = "report.json"
CURVE_PICTURE = "curve.svg"


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """The outcome of a run.

    Attributes:
        recipe: its name.
        start: name and fingerprint of the checkpoint it started from.
        figure: what validation measured.
        before: this figure before the first step.
        best: the best one.
        best_step: the step after which it was measured; the checkpoint has these weights.
        steps: completed.
        stopped: why it ended: "steps", "patience" or "time".
        corpora: facts about each.
    """

    recipe: str
    start: str
    figure: str
    before: float
    best: float
    best_step: int
    steps: int
    stopped: str
    corpora: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained model with its term channel.

    Attributes:
        model: with its best weights.
        channel: its term channel.
        report: of the run.
    """

    model: "EncoderModel"
    channel: TermChannel
    report: TrainingReport


def make_report(
    job: TrainingJob[Start],
    recipe: "TrainingRecipe",
    figure: str,
    corpora: Sequence[Mapping[str, Any]],
    *,
    out_of_time: bool,
) -> TrainingReport:
    """Make the report of a run that has ended, from its curve.

    Args:
        job: that ran.
        recipe: as it was followed.
        figure: what validation measured.
        corpora: facts about each.
        out_of_time: whether the run ended because its time was up.
    """
    from training.run_files import CURVE, LOSS, VALIDATION, read_curve

    records = read_curve(job.work / RUN / CURVE)
    validations = [(r["step"], r[VALIDATION]) for r in records if VALIDATION in r]
    best_step, best = max(validations, key=lambda measured: (measured[1], -measured[0]))
    steps = max((r["step"] for r in records if LOSS in r), default=0)
    ended = "steps" if steps == recipe.steps else "patience"
    return TrainingReport(
        recipe=recipe.name,
        start=f"{job.start.name} {job.start.fingerprint}",
        figure=figure,
        before=validations[0][1],
        best=best,
        best_step=best_step,
        steps=steps,
        stopped="time" if out_of_time else ended,
        corpora=tuple(corpora),
    )


def write_output(job: EncoderJob, trained: Trained, gate: "Gate") -> None:
    """Write the checkpoint, its graphs, the curves and the report, atomically.

    Args:
        job: that ran.
        trained: what it trained.
        gate: that the graphs must pass.

    Raises:
        ParityError: a graph does not compute what the model computes.
        QualityError: a smaller precision loses more than the gate allows; the run stays in the work
            directory, and the same job with another precision resumes from it.
        OSError: it could not be written.
    """
    from encoder.export.export import export_checkpoint

    name = f"{job.start.name}-{trained.report.recipe}"
    with output_of(job, trained.report) as directory:
        model = trained.model.cpu()
        checkpoint = write_trained(model, trained.channel, job.start, directory, name)
        export_checkpoint(checkpoint, job.precisions, gate)


@contextmanager
def output_of(job: TrainingJob[Start], report: TrainingReport) -> Iterator[Path]:
    """Yield a directory for a checkpoint; with its curves and report it becomes the output.

    If an error is raised, there is no output.
    """
    from training.run_files import CURVE, draw_curve

    partial = job.output.with_name(job.output.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    curves = partial / "training"
    curves.mkdir()
    shutil.copyfile(job.work / RUN / CURVE, curves / CURVE)
    shutil.copyfile(job.recipe, curves / "recipe.toml")
    draw_curve(curves / CURVE, curves / CURVE_PICTURE)
    content = json.dumps(asdict(report), indent=2, ensure_ascii=False) + "\n"
    (curves / REPORT).write_text(content, encoding="utf-8")
    partial.rename(job.output)


def write_trained(
    model: EncoderModel, channel: TermChannel, start: Checkpoint, directory: Path, name: str
) -> Checkpoint:
    """Write weights, configuration and tokenizer of a trained checkpoint, no graphs yet.

    The projection of the term channel is folded into its table.

    Args:
        model: trained.
        channel: its term channel; of width 0 where it has none.
        start: the checkpoint it was trained from, whose tokenizer and sizes it keeps.
        directory: created if missing.
        name: of the new checkpoint.
    """
    directory.mkdir(parents=True, exist_ok=True)
    config = json.loads(read_verified(start.directory, start.files, CONFIG))
    shutil.copyfile(start.directory / TOKENIZER, directory / TOKENIZER)
    if channel.table.width:
        table = fold_projection(cast(ReadsTerms, model.document_encoder), channel.table)
        write_term_table(directory / TERMS, table)
        config |= {"dimension": model.config.dimension}
        config["model"] |= {
            "term_features": table.width,
            "term_dimension": table.width,
            "term_buckets": channel.vocabulary.buckets,
            "sketch_dimension": channel.hashed.dimension,
        }
        if channel.hashed.dimension:
            write_hashed_terms(directory / HASHED_TERMS, channel.hashed)
    save_weights(model, directory)
    write_config(directory, config | {"name": name})
    write_manifest(directory)
    return load_checkpoint(directory)


def read_vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Read the token ids that masking needs.

    Raises:
        CheckpointError: the tokenizer has no [MASK].
    """
    tokenizer = Tokenizer.from_buffer(
        read_verified(checkpoint.directory, checkpoint.files, TOKENIZER)
    )
    mask = tokenizer.token_to_id("[MASK]")
    if mask is None:
        raise CheckpointError(f"{checkpoint.directory / TOKENIZER} has no [MASK]")
    special = (checkpoint.start_token, checkpoint.end_token, checkpoint.padding_token, mask)
    return Vocabulary(int(checkpoint.model["vocabulary_size"]), mask, special)
