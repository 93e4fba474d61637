"""Other vectors are tested in shadow beside the present ones, and replace them only if better.

The queries are those of the feedback that the new checkpoint did not learn from, by the record
that `longmatch train --feedback` leaves in it. Of a checkpoint without a record nobody knows; for
it they are the queries that training on this feedback would leave for validation. Where the
checkpoint stays, as with an adapter or another reading share, both sides have learned the same, and
all queries count.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any

from encoder.adapter import vector_space
from encoder.atomic_files import write_atomically
from encoder.checkpoint import Checkpoint
from encoder.errors import AdapterError
from encoder.onnx_encoder import OnnxEncoder
from evaluation.fitting.feedback import (
    MIN_TESTED,
    Candidate,
    SearchableQuery,
    run_shadow_test,
)
from evaluation.fitting.judged_queries import JudgedQuery, hold_out, not_learned
from index.adapt import read_corpus_adapter
from index.directory.data_directory import (
    SHADOW_TEST_FILE,
    STORE_FILE,
    DataDirectory,
    open_data_directory,
)
from index.optional_dependencies import require_extra
from index.progress import Progress
from index.reencode import Reencoded, require_another
from index.search.fusion import fusion_of
from index.sqlite.connections import utc_now
from index.store.schema import read_space
from service.cli.checks import OptionError, open_checkpoint
from service.cli.feedback.judged import check_enough, keys_of_texts, open_store, read_judged
from service.cli.feedback.questions import asked, described, look_for, passages
from service.cli.opening import Loaded, load, with_reading
from service.cli.options import console
from service.cli.progress import printable
from training.jobs.output import TRAINING
from training.sources.corpus_folder import read_learned
from training.sources.feedback_corpus import HELD_OUT

_WEIGHTS = ("hybrid_alignment_weight", "lexical_weight")
RECORD, DIVISION = "record of training", "division of training"
ONE_CHECKPOINT = "use of one checkpoint"


@dataclass(frozen=True, slots=True)
class Trial:
    """What a test needs to know before anything is encoded.

    Attributes:
        data: the data directory.
        served: the path of the checkpoint of its present vectors; None for the one that ships.
        judged: all queries of the feedback.
        held_out: those of them that the new checkpoint did not learn from, and which compare.
        chosen_by: how they were chosen: `RECORD`, `DIVISION` or `ONE_CHECKPOINT`.
    """

    data: Path
    served: Path | None
    judged: Sequence[JudgedQuery]
    held_out: Sequence[JudgedQuery]
    chosen_by: str


def check_trial(data: Path) -> None:
    """Check that there can be a test at all, without opening a store.

    Raises:
        MissingExtraError: the extra for evaluation is not installed.
        OptionError: there is too little feedback.
        StoreError: the feedback cannot be read.
    """
    require_extra("evaluate", "reencode --only-if-better", "ir_measures")
    require_extra("evaluate", "reencode --only-if-better", "scipy")
    check_enough(data, MIN_TESTED, "--only-if-better", compared=True)


def open_trial(data: Path, new: Checkpoint, served: Path | None, *, adapt: bool) -> Trial:
    """Check that other vectors can be tested, and choose the queries.

    Raises:
        OptionError: there is too little feedback that the new checkpoint did not learn from, or
            the present vectors are not of the served checkpoint.
        StoreError: the store or the feedback cannot be read, or the vectors are of the new
            checkpoint already.
    """
    require_another(data, new, adapt=adapt)
    present = _check_served(data, served)
    learned = _read_learned(new)
    store = open_store(data)
    try:
        judged = read_judged(data, store)
        if present.fingerprint == new.fingerprint:  # both sides learned the same
            chosen, chosen_by = [True] * len(judged), ONE_CHECKPOINT
        elif learned is None:
            chosen, chosen_by = hold_out(judged, HELD_OUT), DIVISION
        else:
            keys = keys_of_texts(data, store, learned)
            chosen, chosen_by = not_learned(judged, keys), RECORD
    finally:
        store.close()
    held_out = [one for one in compress(judged, chosen) if one.compares and one.relevant]
    if len(held_out) < MIN_TESTED:
        raise OptionError(
            "--only-if-better",
            f"{data}: by the {chosen_by}, {len(held_out)} queries of the feedback with a relevant "
            f"match and one that is less so were held out, and it takes {MIN_TESTED}: give more "
            "(POST /feedback), or wait for it",
        )
    return Trial(data, served, judged, held_out, chosen_by)


def run_trial(
    trial: Trial, made: Reencoded, others: int, seed: int, progress: Progress
) -> dict[str, Any]:
    """Search in the present and in the new content; return the report of the test, for JSON.

    Raises:
        EncoderError: the served checkpoint is damaged.
        StoreError: a store or a fusion rule cannot be read.
    """
    served = load(trial.served, None, None, None, trial.data)
    new = Loaded(made.encoder.checkpoint, made.tokenizer, made.encoder)
    with _opened(trial.data, served.encoder) as old, _opened(made.content, new.encoder) as fresh:
        sides = ((served, old), (new, fresh))
        texts = passages(old, trial.judged, others, seed, progress)
        held_out = _of_both([asked(*one, trial.held_out, progress) for one in sides])
        known = _of_both([look_for(one, texts, progress) for one, _ in sides])
        if len(held_out[0]) < MIN_TESTED or not known[0]:
            raise OptionError(
                "--only-if-better",
                f"{trial.data}: {len(held_out[0])} held-out queries and {len(known[0])} passages "
                f"can be read by both checkpoints, and it takes {MIN_TESTED} and 1",
            )
        before, after = (
            Candidate(
                directory,
                fusion_of(directory.path, one.checkpoint, one.encoder.adapter),
                held_out[number],
                known[number],
            )
            for number, (one, directory) in enumerate(sides)
        )
        found = run_shadow_test(before, after, progress)
    return {
        "created": utc_now(),
        "present": _named(served, before),
        "new": _named(new, after),
        "chosen_by": trial.chosen_by,
        **asdict(found),
    }


def print_report(report: dict[str, Any]) -> None:
    """Print what a test found."""
    for side in ("present", "new"):
        one = report[side]
        weights = ", ".join(f"{name} {one['rule'][name]:g}" for name in _WEIGHTS)
        console.print(printable(f"{side}: {one['checkpoint']} ({weights})"))
    for name, what in (
        ("held_out", f"held-out queries (by the {report['chosen_by']})"),
        ("others", "passages of other documents"),
    ):
        console.print(described(what, report[name]))


def keep_report(made: Reencoded, report: dict[str, Any]) -> None:
    """Write the report into the new content, with which it appears in the data directory.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(made.content / SHADOW_TEST_FILE, json.dumps(report, indent=2) + "\n")


def _read_learned(new: Checkpoint) -> list[bytes] | None:
    """Return the SHA-256 of the texts that a checkpoint learned from, if it has a record."""
    try:
        found = read_learned(new.directory / TRAINING)
        return None if found is None else [bytes.fromhex(one) for one in found]
    except ValueError as error:
        raise OptionError(
            "--checkpoint", f"{new.directory}: its record of training is damaged: {error}"
        ) from error


def _check_served(data: Path, served: Path | None) -> Checkpoint:
    """Return the checkpoint of the present vectors, without loading a graph."""
    checkpoint = with_reading(open_checkpoint(served, option="--served"), data, None)
    stored = read_space(data / STORE_FILE).fingerprint
    try:
        fingerprint = vector_space(checkpoint, read_corpus_adapter(data, checkpoint)).fingerprint
    except AdapterError as error:
        raise OptionError("--served", error) from error
    if fingerprint != stored:
        raise OptionError(
            "--served",
            f"{data}: its vectors are {stored[:12]}, and not of checkpoint {checkpoint.name} "
            f"({fingerprint[:12]}): name the one that it is served with",
        )
    return checkpoint


@contextmanager
def _opened(data: Path, encoder: OnnxEncoder) -> Iterator[DataDirectory]:
    """Open a data directory for reading; both sides search with an index in this process."""
    directory = open_data_directory(
        data, fingerprint=encoder.fingerprint, dimension=encoder.dimension, read_only=True
    )
    with closing(directory):
        yield directory


def _of_both(
    sides: Sequence[Sequence[SearchableQuery | None]],
) -> tuple[list[SearchableQuery], list[SearchableQuery]]:
    """Return the queries that both sides can ask, for each side."""
    both = [(a, b) for a, b in zip(*sides, strict=True) if a is not None and b is not None]
    return [a for a, _ in both], [b for _, b in both]


def _named(loaded: Loaded, one: Candidate) -> dict[str, Any]:
    return {
        "checkpoint": loaded.checkpoint.name,
        "fingerprint": loaded.encoder.fingerprint,
        "rule": asdict(one.rule),
    }
