"""`calibration.json` in a data directory: how random pairs of its documents score.

It holds a distribution for each kind of score. It is optional, and read when the data directory is
opened for serving.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from encoder.atomic_files import write_atomically
from index.directory.data_directory import CALIBRATION_FILE
from index.errors import StoreError
from index.progress import Progress
from index.search.fusion import LinearFusion
from index.search.records import Mode
from index.search.score_distribution import (
    MAX_DOCUMENTS,
    Channels,
    NullDistribution,
    Threshold,
    measure_modes,
)
from index.store.document_store import SQLiteDocumentStore

FORMAT = 1
VERSION_DIGITS = 12


@dataclass(frozen=True, slots=True)
class CorpusCalibration:
    """The content of the file.

    Attributes:
        fingerprint: of the vectors that were measured.
        kinds: distributions by kind of score.
        rule: how the scores that were measured are combined.
    """

    fingerprint: str
    kinds: Mapping[str, NullDistribution]
    rule: LinearFusion

    @property
    def version(self) -> str:
        """A short digest of the content."""
        text = json.dumps(_to_json(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:VERSION_DIGITS]


def measure_store(
    store: SQLiteDocumentStore, rule: LinearFusion, progress: Progress, *, seed: int = 0
) -> Mapping[Mode, NullDistribution]:
    """Measure how random pairs of the stored documents score in each mode.

    At most `MAX_DOCUMENTS` are sampled: their vectors and terms are held in memory.
    """
    ids = store.changes_since(0).added
    if len(ids) > MAX_DOCUMENTS:
        ids = np.random.default_rng(seed).choice(ids, MAX_DOCUMENTS, replace=False)
    living, vectors = store.vectors(ids)
    words = store.lexical.term_rows(living, progress)
    blocks = store.alignment.read(living.tolist())
    aligned = None if blocks is None else [blocks.blocks.get(one) for one in living.tolist()]
    return measure_modes(Channels(vectors, words, rule, aligned), progress, seed=seed)


def write_corpus_calibration(directory: Path, calibration: CorpusCalibration) -> None:
    """Write the file into a data directory atomically."""
    content = {"version": calibration.version, **_to_json(calibration)}
    write_atomically(directory / CALIBRATION_FILE, json.dumps(content, indent=2) + "\n")


def read_corpus_calibration(
    directory: Path, fingerprint: str, rule: LinearFusion
) -> CorpusCalibration | None:
    """Read the file of a data directory; None if it does not exist.

    Raises:
        StoreError: the file is damaged, has another format, or was made with vectors of another
            `fingerprint` or with another fusion `rule`.
    """
    path = directory / CALIBRATION_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    calibration = _parse(data, path)
    if calibration.fingerprint != fingerprint:
        raise StoreError(
            f"{path}: was made with checkpoint {calibration.fingerprint[:12]}, not with "
            f"{fingerprint[:12]}: calibrate again or delete it"
        )
    if calibration.rule != rule:
        raise StoreError(
            f"{path}: was made with the fusion {calibration.rule}, not {rule}: calibrate again or "
            "delete it"
        )
    return calibration


def _parse(data: bytes, path: Path) -> CorpusCalibration:
    try:
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise StoreError(f"{path}: format {content['format']!r} is not {FORMAT}")
        calibration = CorpusCalibration(
            fingerprint=str(content["fingerprint"]),
            kinds={str(kind): _distribution(one) for kind, one in content["kinds"].items()},
            rule=LinearFusion(**{name: float(one) for name, one in content["rule"].items()}),
        )
        version = str(content["version"])
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: not a calibration: {error!r}; calibrate again or delete it"
        ) from error
    if version != calibration.version:
        raise StoreError(f"{path}: does not match its version: calibrate again or delete it")
    return calibration


def _to_json(calibration: CorpusCalibration) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "fingerprint": calibration.fingerprint,
        "rule": asdict(calibration.rule),
        "kinds": {kind: asdict(one) for kind, one in calibration.kinds.items()},
    }


def _distribution(content: Mapping[str, Any]) -> NullDistribution:
    scores = tuple(float(score) for score in content["scores"])
    rates = tuple(float(rate) for rate in content["rates"])
    if not scores or len(scores) != len(rates):
        raise ValueError(f"{len(scores)} scores for {len(rates)} rates")
    if not all(map(math.isfinite, scores)) or any(b <= a for a, b in pairwise(scores)):
        raise ValueError("the scores do not rise")
    if any(b > a for a, b in pairwise(rates)) or not 0 < rates[-1] <= rates[0] <= 1:
        raise ValueError("the rates do not fall from 1 and stay above 0")
    return NullDistribution(
        documents=int(content["documents"]),
        pairs=int(content["pairs"]),
        seed=int(content["seed"]),
        scores=scores,
        rates=rates,
        thresholds=tuple(Threshold(**one) for one in content["thresholds"]),
    )
