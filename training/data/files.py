"""The files of a training job: a corpus, and what is known of its documents."""

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from encoder.checkpoint import Checkpoint
from encoder.reranker.checkpoint import RerankerCheckpoint
from evaluation.judgements import PARTS
from index.errors import CorpusError

if TYPE_CHECKING:
    from training.recipe import TrainingRecipe

_LINES = (".jsonl", ".jsonl.gz")
_PART_OF_WORD = {
    **{part: part for part in PARTS},
    **dict.fromkeys(("dev", "eval", "val", "validation"), "valid"),
    **{"training": "train", "testing": "test"},
}


@dataclass(frozen=True, slots=True)
class CorpusFiles:
    """A corpus with what is known of its documents.

    Attributes:
        corpus: of any format of `index.corpus.reader`.
        qrels: links between documents, as judgements whose queries are documents.
        pairs: labelled pairs.
        splits: which document is for training, validation, testing.
    """

    corpus: Path
    qrels: Path | None = None
    pairs: tuple[Path, ...] = ()
    splits: Path | None = None


Start = TypeVar("Start", Checkpoint, RerankerCheckpoint)


# No slots: Python 3.11 cannot make an instance of a frozen generic one by its alias.
@dataclass(frozen=True, kw_only=True)
class TrainingJob(Generic[Start]):
    """What to train, on what, and where to.

    Attributes:
        recipe: a TOML file.
        start: the checkpoint to start from, with its weights: an encoder or a reranker.
        files: the corpora.
        output: the directory to write; must not exist.
        work: the directory for intermediate results.
        precisions: of the graphs to export; a reranker without any is weights alone.
        steps: instead of those of the recipe.
        seconds: of training in this call, after which it stops and keeps the best weights.
        allow_shared: whether training may see documents of held-out pairs, and held-out texts.
    """

    recipe: Path
    start: Start
    files: Sequence[CorpusFiles]
    output: Path
    work: Path
    precisions: Sequence[str]
    steps: int | None = None
    seconds: float | None = None
    allow_shared: bool = False


EncoderJob = TrainingJob[Checkpoint]
RerankJob = TrainingJob[RerankerCheckpoint]


def time_limit(seconds: float | None) -> Callable[[], bool]:
    """Return what says whether so many seconds are over, counted from now."""
    end = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def read_recipe(job: TrainingJob[Start]) -> "TrainingRecipe":
    """Read the recipe of a job, with the number of steps that the job sets."""
    from training.distillation import smaller_config
    from training.errors import TrainingRecipeError
    from training.export.create import model_config
    from training.recipe import TrainingRecipe, check_objective, check_recurrence

    recipe = TrainingRecipe.read(job.recipe)
    for_reranker = any(objective.kind == "rerank" for objective in recipe.objectives)
    if for_reranker and isinstance(job.start, Checkpoint):
        raise TrainingRecipeError(f"recipe {job.recipe} is for a reranker, not for an encoder")
    if not for_reranker and isinstance(job.start, RerankerCheckpoint):
        raise TrainingRecipeError(f'recipe {job.recipe}: a reranker takes the objective "rerank"')
    if isinstance(job.start, Checkpoint):
        check_recurrence(recipe, recurrent=job.start.segment_memory is not None)
        config = model_config(job.start)
        for objective in recipe.objectives:
            check_objective(objective, config)
        if recipe.sentence_level.changes_layers:
            smaller_config(config, recipe.sentence_level)
    return recipe if job.steps is None else recipe.model_copy(update={"steps": job.steps})


def find_corpus_files(corpus: Path) -> CorpusFiles:
    """Find qrels.tsv, splits.tsv, pairs.jsonl and pairs.<part>.jsonl beside a corpus in a folder.

    Only a folder that holds `corpus.jsonl` (plain or gzip) is looked into: in a folder of files
    every file is a document.
    """
    if not any((corpus / f"corpus{suffix}").is_file() for suffix in _LINES):
        return CorpusFiles(corpus)
    of_parts = ("", *(f".{part}" for part in PARTS))
    pairs = (corpus / f"pairs{part}{end}" for part in of_parts for end in _LINES)
    return CorpusFiles(
        corpus=corpus,
        qrels=_plain_or_gzip(corpus / "qrels.tsv"),
        pairs=tuple(path for path in pairs if path.is_file()),
        splits=_plain_or_gzip(corpus / "splits.tsv"),
    )


def part_in_name(path: Path) -> str | None:
    """Return the part that a file is for by a word of its name (`pairs.valid.jsonl`), if any."""
    words = re.split("[._-]", path.name.lower())
    parts = {_PART_OF_WORD[word] for word in words if word in _PART_OF_WORD}
    return parts.pop() if len(parts) == 1 else None


def given_files(
    corpora: list[Path], qrels: Path | None, pairs: list[Path], splits: Path | None
) -> list[CorpusFiles]:
    """Return the files that a command line names."""
    if len(set(corpora)) < len(corpora):
        raise CorpusError("a corpus is named twice")
    if not (qrels or pairs or splits):
        return [find_corpus_files(corpus) for corpus in corpora]
    if len(corpora) != 1:
        raise CorpusError(
            "qrels, pairs and splits can be named for one corpus only: with several, put them "
            "beside corpus.jsonl in a folder, as qrels.tsv, pairs.jsonl and splits.tsv"
        )
    return [CorpusFiles(corpora[0], qrels, tuple(pairs), splits)]


def _plain_or_gzip(path: Path) -> Path | None:
    return next((p for p in (path, path.with_name(f"{path.name}.gz")) if p.is_file()), None)
