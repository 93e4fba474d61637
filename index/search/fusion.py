"""Linear fusion of the semantic and the lexical score into the score of hybrid mode.

The score of hybrid mode is the weighted mean of the cosines of document vectors and of words:

    score = (1 - lexical_weight) * semantic_score + lexical_weight * lexical_score

Its one parameter is fitted on validation queries of several corpora together
(`evaluation/fitting/fusion.py`), so that it is not specific to one. Unlike rank fusion or scores
standardised within an answer, the score of a pair does not depend on other documents, so it can be
bounded and calibrated.
`fusion.json` in a checkpoint holds the weight for its vectors.
"""

import json
from dataclasses import dataclass

from encoder.arrays import Float32
from encoder.atomic_files import write_atomically
from encoder.calibration import HYBRID_KINDS, Calibration, read_calibration, write_calibration
from encoder.checkpoint import FUSION, Checkpoint, read_verified, write_manifest
from encoder.errors import CheckpointError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class LinearFusion:
    """The weight of the lexical score, from 0 to 1; the semantic score has the rest.

    Raises:
        ValueError: the weight is not from 0 to 1.
    """

    lexical_weight: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.lexical_weight <= 1.0:
            raise ValueError(
                f"the weight of the lexical score is {self.lexical_weight}, not from 0 to 1"
            )


DEFAULT_RULE = LinearFusion(lexical_weight=0.925)  # fitted for the mean of block vectors


def fuse(rule: LinearFusion, semantic: Float32, lexical: Float32) -> Float32:
    """Return the score Float32[N] of N documents from their semantic and lexical scores."""
    fused: Float32 = (1.0 - rule.lexical_weight) * semantic + rule.lexical_weight * lexical
    return fused


def read_fusion(checkpoint: Checkpoint) -> LinearFusion:
    """Read the fusion of a checkpoint; `DEFAULT_RULE` if it has none.

    Raises:
        CheckpointError: the file is damaged, has another format, or was fitted for another
            checkpoint.
    """
    if FUSION not in checkpoint.files:
        return DEFAULT_RULE
    path = checkpoint.directory / FUSION
    data = read_verified(checkpoint.directory, checkpoint.files, FUSION)
    try:
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {content['format']!r} is not {FORMAT}")
        rule = LinearFusion(float(content["lexical"]))
        fingerprint = str(content["fingerprint"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not a fusion rule: {error!r}") from error
    if fingerprint != checkpoint.fingerprint:
        raise CheckpointError(
            f"{path}: was fitted for checkpoint {fingerprint[:12]}, not for "
            f"{checkpoint.fingerprint[:12]}: fit it again or delete it"
        )
    return rule


def write_fusion(checkpoint: Checkpoint, rule: LinearFusion) -> None:
    """Write `fusion.json` into a checkpoint and update its manifest.

    A changed rule changes hybrid scores, so their calibrations are removed.

    Raises:
        CheckpointError: the previous rule or the calibration is damaged.
        OSError: a file cannot be written.
    """
    calibration = None if read_fusion(checkpoint) == rule else read_calibration(checkpoint)
    if calibration is not None:
        kept = {kind: one for kind, one in calibration.kinds.items() if kind not in HYBRID_KINDS}
        write_calibration(checkpoint, Calibration(checkpoint.fingerprint, kept))
    path = checkpoint.directory / FUSION
    content = {
        "format": FORMAT,
        "fingerprint": checkpoint.fingerprint,
        "lexical": rule.lexical_weight,
    }
    write_atomically(path, json.dumps(content, indent=2) + "\n")
    write_manifest(checkpoint.directory)
