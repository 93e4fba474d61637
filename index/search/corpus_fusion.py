"""`fusion.json` in a data directory: how scores are combined there, if not as its checkpoint does.

`longmatch tune` fits it to the feedback of a corpus. It is optional, and read when the data
directory is opened.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from encoder.adapter import Adapter, vector_space
from encoder.atomic_files import write_atomically
from encoder.calibration import (
    VERSION_DIGITS,
    FittedMap,
    fitted_map_to_json,
    parse_fitted_map,
)
from encoder.checkpoint import Checkpoint
from index.directory.data_directory import FUSION_FILE
from index.errors import StoreError
from index.search.fusion import RULE_FIELDS, LinearFusion, read_fusion

FORMAT = 2


@dataclass(frozen=True, slots=True)
class CorpusFusion:
    """The content of the file.

    Attributes:
        fingerprint: of the vectors whose scores it was fitted to.
        rule: how they are combined.
        report: how it was tested, as JSON; for people.
        probabilities: what scores by this rule are worth, by kind of score, if that is known; the
            inputs of the maps are scores.
    """

    fingerprint: str
    rule: LinearFusion
    report: dict[str, Any]
    probabilities: Mapping[str, FittedMap] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """A short digest of what probabilities depend on."""
        text = json.dumps([asdict(self.rule), _maps_to_json(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:VERSION_DIGITS]


def fusion_of(directory: Path, checkpoint: Checkpoint, adapter: Adapter | None) -> LinearFusion:
    """Return how the scores of a data directory are combined.

    Args:
        directory: the data directory.
        checkpoint: with its reading share.
        adapter: of the data directory, if it has one.
    """
    found = read_corpus_fusion(directory, vector_space(checkpoint, adapter).fingerprint)
    return read_fusion(checkpoint) if found is None else found.rule


def write_corpus_fusion(directory: Path, fusion: CorpusFusion) -> None:
    """Write the file into a data directory, whole or not at all."""
    content = {
        "format": FORMAT,
        "fingerprint": fusion.fingerprint,
        "rule": asdict(fusion.rule),
        "probabilities": _maps_to_json(fusion),
        "report": fusion.report,
    }
    write_atomically(directory / FUSION_FILE, json.dumps(content, indent=2) + "\n")


def read_corpus_fusion(directory: Path, fingerprint: str) -> CorpusFusion | None:
    """Read the file of a data directory; None if there is none.

    Raises:
        StoreError: it is damaged, has another format, or is of vectors of another `fingerprint`.
    """
    path = directory / FUSION_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = json.loads(data)
        if content["format"] != FORMAT:
            raise StoreError(f"{path}: format {content['format']!r} is not {FORMAT}")
        rule = LinearFusion(**{name: float(content["rule"][name]) for name in RULE_FIELDS})
        maps = {str(k): parse_fitted_map(one) for k, one in content["probabilities"].items()}
        found = CorpusFusion(str(content["fingerprint"]), rule, dict(content["report"]), maps)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}: not a fusion rule: {error!r}; tune again or delete it"
        ) from error
    if found.fingerprint != fingerprint:
        raise StoreError(
            f"{path}: was fitted for vectors {found.fingerprint[:12]}, not for "
            f"{fingerprint[:12]}: tune again or delete it"
        )
    return found


def _maps_to_json(fusion: CorpusFusion) -> dict[str, Any]:
    return {kind: fitted_map_to_json(one) for kind, one in fusion.probabilities.items()}
