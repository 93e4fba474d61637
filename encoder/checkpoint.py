"""A checkpoint: one directory with all that an encoder is made of.

config.json           what the encoder reads and how large it is
tokenizer.json        the WordPiece tokenizer
manifest.json         SHA-256 of each file, and of the weights that the graphs were made from
calibration.json      optional: from score to match probability, see encoder/calibration.py
fusion.json           optional: how vector and word scores are joined, see index/search/fusion.py
golden.npz            a golden batch with the vectors that the model gives for it
parity.json           how far each graph is from the model on the golden batch
terms.npz             the term table, if there is a term channel, see encoder/terms/term_table.py
sketch.npz            weights of hashed terms, if it has them, see encoder/terms/feature_hashing.py
quality.json          optional: what int8 and fp16 keep of fp32, see encoder/export/quality.py
<precision>/          block_encoder.onnx and document_encoder.onnx
weights.safetensors   the weights, for training and export; serving does not need them
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.blocks import LongSentence
from encoder.errors import CheckpointError

FORMAT = 1
DEFAULT_CHECKPOINT = Path(__file__).parent / "checkpoints" / "smith-minilm-l6"
PRECISIONS = ("int8", "fp16", "fp32")
BLOCK_GRAPH = "block_encoder.onnx"
DOCUMENT_GRAPH = "document_encoder.onnx"
CALIBRATION = "calibration.json"
CONFIG = "config.json"
FUSION = "fusion.json"
GOLDEN = "golden.npz"
MANIFEST = "manifest.json"
PARITY = "parity.json"
QUALITY = "quality.json"
SKETCH = "sketch.npz"
TERMS = "terms.npz"
TOKENIZER = "tokenizer.json"
WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is written in a checkpoint directory; opening one loads no tensor.

    Attributes:
        directory: where it lies.
        name: of the checkpoint, for people.
        architecture: "smith" or "colde".
        fingerprint: SHA-256, in hex, over configuration, tokenizer, weights and term channel:
            vectors of equal fingerprints can be compared, whatever precision made them.
        block_length: tokens of a sentence block, special tokens included.
        max_blocks: sentence blocks of a document that are read.
        long_sentence: what becomes of a sentence longer than a block.
        language: ISO 639-1 code, for the sentence splitter.
        start_token: token id that opens a block ([CLS]).
        end_token: token id that closes a block ([SEP]).
        padding_token: token id of padding.
        block_dimension: width of a block vector.
        dimension: width of the document vector.
        model: the other fields of the architecture's configuration.
        precisions: those whose graphs are present.
        files: SHA-256, in hex, of each file by its name relative to the directory.
    """

    directory: Path
    name: str
    architecture: str
    fingerprint: str
    block_length: int
    max_blocks: int
    long_sentence: LongSentence
    language: str
    start_token: int
    end_token: int
    padding_token: int
    block_dimension: int
    dimension: int
    model: Mapping[str, Any]
    precisions: tuple[str, ...]
    files: Mapping[str, str]


def load_checkpoint(directory: Path) -> Checkpoint:
    """Open a checkpoint directory and verify its configuration and tokenizer.

    Raises:
        CheckpointError: a file is missing, changed or not understood; the message names it.
    """
    manifest = _read_json(directory / MANIFEST)
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{directory / MANIFEST}: format {manifest.get('format')!r} is not {FORMAT}"
        )
    try:
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
        weights = str(manifest["weights"])
        config = json.loads(read_verified(directory, files, CONFIG))
        read_verified(directory, files, TOKENIZER)
        return Checkpoint(
            directory=directory,
            fingerprint=_fingerprint(files, weights),
            precisions=tuple(p for p in PRECISIONS if f"{p}/{BLOCK_GRAPH}" in files),
            files=files,
            **config,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error


def read_verified(directory: Path, files: Mapping[str, str], name: str) -> bytes:
    """Read one file of a checkpoint.

    Raises:
        CheckpointError: it is not in the manifest, missing, or not what the manifest says.
    """
    path = directory / name
    if name not in files:
        raise CheckpointError(f"{path} is not part of this checkpoint")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    if hashlib.sha256(data).hexdigest() != files[name]:
        raise CheckpointError(f"{path} is not the file that {MANIFEST} names: it was changed")
    return data


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the fields of `Checkpoint` that are not read off the directory."""
    (directory / CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")


def write_manifest(directory: Path) -> None:
    """Write `manifest.json` over the files that are there.

    The digest of the weights is kept from the former manifest where the weights themselves are
    not beside the graphs.
    """
    weights = directory / WEIGHTS
    digest = (
        file_digest(weights) if weights.exists() else _read_json(directory / MANIFEST)["weights"]
    )
    names = [CONFIG, TOKENIZER, TERMS, SKETCH, GOLDEN, PARITY, QUALITY, CALIBRATION, FUSION]
    names += [f"{p}/{graph}" for p in PRECISIONS for graph in (BLOCK_GRAPH, DOCUMENT_GRAPH)]
    files = {name: file_digest(directory / name) for name in names if (directory / name).exists()}
    manifest = {"format": FORMAT, "weights": digest, "files": files}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fingerprint(files: Mapping[str, str], weights: str) -> str:
    words = [files[name] for name in (TERMS, SKETCH) if name in files]
    parts = [files[CONFIG], files[TOKENIZER], weights, *words]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return content
