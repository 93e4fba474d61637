"""A checkpoint: the directory with everything an encoder consists of.

config.json           what the encoder reads, and its sizes
tokenizer.json        the WordPiece tokenizer
manifest.json         SHA-256 of each file, and of the weights that the graphs were made from; which
                      files it shares with the checkpoint of another folder, which has them
alignment.npz         optional: the space that blocks are aligned in, see encoder/alignment/space.py
calibration.json      optional: maps from score to match probability, see encoder/calibration.py
fusion.json           optional: how vector and word scores are joined, see index/search/score.py
golden.npz            a golden batch with the vectors that the model gives for it
parity.json           how far each graph is from the model on the golden batch
section_reader.onnx   of a model with sections: reads a section and the next one, in fp32
terms.npz             the term table, if there is a term channel, see encoder/terms/term_table.py
sketch.npz            weights of hashed terms, if it has them, see encoder/terms/term_channel.py
quality.json          optional: how int8 and fp16 compare with fp32, see evaluation/quality_gate.py
<precision>/          block_encoder.onnx and document_encoder.onnx
weights.safetensors   the weights in half precision, for training and export, and for the graphs in
                      fp16, which have none; serving in other precisions does not need them
"""

import hashlib
import json
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from typing import Any, get_args

from encoder.blocks import LongSentence, block_capacity
from encoder.errors import CheckpointError

FORMAT = 1
SHIPPED = Path(__file__).parent / "checkpoints"
DEFAULT_CHECKPOINT = SHIPPED / "smith-minilm-l6"
BY_NAME = {"best": DEFAULT_CHECKPOINT, "fast": SHIPPED / "smith-minilm-l2"}
PRECISIONS = ("int8", "fp16", "fp32")
BLOCK_GRAPH = "block_encoder.onnx"
DOCUMENT_GRAPH = "document_encoder.onnx"
PAIR_GRAPH = "cross_encoder.onnx"
ALIGNMENT = "alignment.npz"
CALIBRATION = "calibration.json"
CONFIG = "config.json"
FUSION = "fusion.json"
GOLDEN = "golden.npz"
MANIFEST = "manifest.json"
PARITY = "parity.json"
QUALITY = "quality.json"
RULE = "rule.json"
SECTION_GRAPH = "section_reader.onnx"
HASHED_TERMS = "sketch.npz"
TERMS = "terms.npz"
SENTENCE_MODEL = "sentence-model"  # the architecture of those in `encoder.sentence_model`
TOKENIZER = "tokenizer.json"
WEIGHTS = "weights.safetensors"

# What a manifest names if it is there, of encoders and of rerankers. Some decide the fingerprint.
_TERM_FILES = (TERMS, HASHED_TERMS)
_FILES = (
    *(CONFIG, TOKENIZER, *_TERM_FILES, GOLDEN, PARITY, QUALITY),
    *(ALIGNMENT, CALIBRATION, FUSION, RULE, SECTION_GRAPH),
)
_GRAPHS = (BLOCK_GRAPH, DOCUMENT_GRAPH, PAIR_GRAPH)


@dataclass(frozen=True, slots=True)
class SegmentMemory:
    """What a recurrent encoder remembers between the segments of a document.

    Attributes:
        layers: how many have a memory.
        length: hidden states of each.
        passes: how often every segment is read: 2 with the retrospective feed.
    """

    layers: int
    length: int
    passes: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The description of a checkpoint directory; loading it reads no tensor.

    Attributes:
        directory: its location.
        name: for display.
        architecture: a name of `training.models.registry.ENCODERS`, or `SENTENCE_MODEL`.
        fingerprint: SHA-256, in hex, over configuration, tokenizer, weights and term channel:
            vectors of equal fingerprints can be compared, regardless of precision.
        block_length: tokens of a sentence block, special tokens included.
        max_blocks: sentence blocks read of a document, at most.
        long_sentence: how a sentence longer than a block is handled.
        language: ISO 639-1 code, for the sentence splitter.
        start_token: token id that opens a block ([CLS]).
        end_token: token id that closes a block ([SEP]).
        padding_token: token id of padding.
        block_dimension: width of a block vector.
        dimension: width of the document vector.
        model: the other fields of the architecture's configuration.
        precisions: of the graphs that are present, with the weights that those in fp16 read.
        files: SHA-256, in hex, of each file by its name relative to the directory.
        reading_share: share of the sentence blocks of a document that the Transformer encodes, from
            over 0 to 1; the words of all are counted. See `encoder.block_selection`.
        source: the name that leads to it on this machine, see `encoder.opening.find_encoder`.
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
    reading_share: float = 1.0
    source: str = ""

    @property
    def block_capacity(self) -> int:
        """Tokens of text that a block holds."""
        return block_capacity(self.block_length, int(self.model.get("reserved_tokens", 2)))

    @property
    def mean_of_blocks(self) -> bool:
        """Whether the vector of a document is the mean of those of its blocks, and no more."""
        return self.architecture == SENTENCE_MODEL

    @property
    def segment_memory(self) -> SegmentMemory | None:
        """The memory of a recurrent encoder; None where each block is read by itself."""
        if "memory_length" not in self.model:
            return None
        return SegmentMemory(
            layers=self.model["sentence_layers"],
            length=self.model["memory_length"],
            passes=2 if self.model["retrospective"] else 1,
        )


def find_checkpoint(name: Path) -> Path:
    """Return the directory of a checkpoint: a name without folders may be one that ships.

    Those are "best", "fast", and the names of their folders; what exists goes before them.
    """
    if name.exists() or len(name.parts) != 1:
        return name
    shipped = BY_NAME.get(str(name), SHIPPED / name)
    return shipped if shipped.is_dir() else name


def is_shipped(directory: Path) -> bool:
    """Whether a checkpoint is one of those that ship, which every installation has."""
    return directory.resolve().parent == SHIPPED.resolve()


def load_checkpoint(directory: Path) -> Checkpoint:
    """Open a checkpoint directory and verify its configuration and tokenizer.

    Here and below, a CheckpointError names the file that is missing, changed or invalid.
    """
    manifest = read_manifest(directory)
    config = read_config(directory, manifest)
    _check_config(directory / CONFIG, config)
    try:
        return Checkpoint(
            directory=directory,
            fingerprint=manifest.fingerprint(),
            precisions=tuple(
                precision
                for precision in PRECISIONS
                if manifest.has(precision, BLOCK_GRAPH)
                and (precision != "fp16" or (directory / WEIGHTS).exists())
            ),
            files=manifest.files,
            source=directory.name if is_shipped(directory) else str(directory.resolve()),
            **config,
        )
    except TypeError as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error


_MOST = 2**31 - 1  # of a size: what a graph can have
LONGEST_BLOCK = 8_192  # tokens
_SIZES = ("block_length", "max_blocks", "block_dimension", "dimension")
_TOKENS = ("start_token", "end_token", "padding_token", "term_features", "reserved_tokens")


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Check the fields that are there; a missing one is named when the checkpoint is made."""
    model = config.get("model", {})
    if not isinstance(model, dict):
        raise CheckpointError(f"{path}: model is not an object")
    numbers = {**dict.fromkeys(_SIZES, (1, _MOST)), **dict.fromkeys(_TOKENS, (0, _MOST))}
    numbers |= {"reserved_tokens": (0, 2), "block_length": (3, LONGEST_BLOCK)}
    for name, (least, most) in numbers.items():
        value = config.get(name, model.get(name, least))
        if type(value) is not int or not least <= value <= most:
            raise CheckpointError(f"{path}: {name} is {value!r}, not from {least} to {most}")
    for name in ("name", "architecture", "language"):
        value = config.get(name, "")
        if not isinstance(value, str) or not value.isprintable():
            raise CheckpointError(f"{path}: {name} is {value!r}, not printable text")
    known = get_args(LongSentence)
    if config.get("long_sentence", known[0]) not in known:
        raise CheckpointError(f"{path}: long_sentence is not one of {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of `manifest.json`, of an encoder or a reranker.

    Attributes:
        files: SHA-256, in hex, of each file by its name relative to the directory.
        weights: SHA-256, in hex, of the weights that the graphs were made from.
        shared: the folder that a file lies in, by the name of the file, where that is the folder of
            another checkpoint in the same parent folder.
    """

    files: Mapping[str, str]
    weights: str
    shared: Mapping[str, str]

    def has(self, precision: str, graph: str) -> bool:
        """Whether a graph of this precision is present."""
        return f"{precision}/{graph}" in self.files

    def fingerprint(self) -> str:
        """Return the SHA-256, in hex, over configuration, tokenizer, weights and term channel."""
        terms = [self.files[name] for name in _TERM_FILES if name in self.files]
        parts = [self.files[CONFIG], self.files[TOKENIZER], self.weights, *terms]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an encoder or a reranker."""
    path = directory / MANIFEST
    content = read_object(path)
    if content.get("format") != FORMAT:
        raise CheckpointError(f"{path}: format {content.get('format')!r} is not {FORMAT}")
    try:
        files = {str(name): str(digest) for name, digest in content["files"].items()}
        shared = {str(name): str(folder) for name, folder in content.get("shared", {}).items()}
        manifest = Manifest(files, str(content["weights"]), shared)
    except (AttributeError, KeyError) as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error
    for folder in shared.values():
        if Path(folder).name != folder or folder == "..":
            raise CheckpointError(f"{path}: shared: {folder!r} is not the name of a folder")
    return manifest


def read_config(directory: Path, manifest: Manifest) -> dict[str, Any]:
    """Read the verified configuration of a checkpoint, and verify its tokenizer."""
    config = _parse_object(directory / CONFIG, read_verified(directory, manifest.files, CONFIG))
    read_verified(directory, manifest.files, TOKENIZER)
    return config


def read_verified(directory: Path, files: Mapping[str, str], name: str) -> bytes:
    """Read one file of a checkpoint, which is what the manifest says."""
    if name not in files:
        raise CheckpointError(f"{directory / name} is not part of this checkpoint")
    path = locate_file(directory, name)
    data = read_file(path)
    if hashlib.sha256(data).hexdigest() != files[name]:
        raise CheckpointError(f"{path} is not the file that {MANIFEST} names: it was changed")
    return data


def locate_file(directory: Path, name: str) -> Path:
    """Return the path of a file of a checkpoint, also of one that it shares with another."""
    path = directory / name
    folder = None if path.exists() else read_manifest(directory).shared.get(name)
    if folder is None:
        return path
    found = directory.resolve().parent / folder / name
    if not found.exists():
        raise CheckpointError(
            f"{path} is missing: this checkpoint shares it with {folder!r}, and there is no "
            f"{found}: copy the folder {folder!r} next to {directory.resolve().name!r}"
        )
    return found


def read_weights(directory: Path) -> bytes:
    """Read the weights of a checkpoint, of an encoder or a reranker."""
    if not (directory / WEIGHTS).exists():
        raise CheckpointError(
            f"{directory} has no {WEIGHTS}: it can only be served, not in fp16, and not trained or "
            "exported. Those of the default checkpoint are in the repository and the Docker image "
            "for a GPU, not in the wheel; `longmatch lab create-checkpoint` makes checkpoints with "
            "weights"
        )
    return read_verified(directory, {WEIGHTS: read_manifest(directory).weights}, WEIGHTS)


def write_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the fields of a checkpoint that are not read off the directory."""
    (directory / CONFIG).write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")


def write_manifest(directory: Path) -> None:
    """Write `manifest.json` over the files that are present, and over those that are shared.

    Where the weights are not present, their digest is taken from the former manifest.
    """
    former = read_manifest(directory) if (directory / MANIFEST).exists() else None
    shared = {
        name: folder
        for name, folder in (former.shared if former else {}).items()
        if not (directory / name).exists()
    }
    names = [*_FILES, *(f"{precision}/{graph}" for precision in PRECISIONS for graph in _GRAPHS)]
    files = {
        name: file_digest(locate_file(directory, name))
        for name in names
        if name in shared or (directory / name).exists()
    }
    weights = directory / WEIGHTS
    digest = file_digest(weights) if weights.exists() else read_manifest(directory).weights
    manifest: dict[str, Any] = {"format": FORMAT, "weights": digest, "files": files}
    if shared:
        manifest["shared"] = shared
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with _open(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open(path: Path) -> BufferedReader:
    # A pipe or a device may have no end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise CheckpointError(f"{path} cannot be read: it is no regular file")
    return path.open("rb")


def read_file(path: Path) -> bytes:
    """Read a file of a checkpoint whole."""
    try:
        with _open(path) as file:
            return file.read()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that is a JSON object."""
    return _parse_object(path, read_file(path))


def read_json(path: Path) -> Any:
    """Read a file that is JSON."""
    return _parse_json(path, read_file(path))


def _parse_object(path: Path, data: bytes) -> dict[str, Any]:
    content = _parse_json(path, data)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return content


def _parse_json(path: Path, data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error


METHOD = "coverage"  # another way to select blocks needs another name
WHOLE = 1.0
_DECIMALS = 2


def check_share(share: float) -> float:
    """Return a share if it is one."""
    if not 0.0 < share <= 1.0 or round(share, _DECIMALS) != share:
        raise ValueError(f"{share} is not from 0.01 to 1, with two decimals")
    return share


def with_reading_share(checkpoint: Checkpoint, share: float) -> Checkpoint:
    """Return a checkpoint that encodes this share of the blocks.

    Raises:
        CheckpointError: the vectors of its blocks, or of its sections, depend on the others, so
            that all must be encoded.
        ValueError: it is no share.
    """
    check_share(share)
    whole = SECTION_GRAPH in checkpoint.files or checkpoint.architecture == SENTENCE_MODEL
    if share < WHOLE and (whole or checkpoint.segment_memory is not None):
        raise CheckpointError(
            f"{checkpoint.name}: a {checkpoint.architecture} encodes every sentence block of a "
            f"document: a reading share of {share:g} is not possible"
        )
    return replace(checkpoint, reading_share=share)


def mark_fingerprint(fingerprint: str, share: float) -> str:
    """Return the fingerprint of vectors for which this share of the blocks was encoded."""
    return fingerprint if share == WHOLE else f"{fingerprint}-{METHOD}-{share:g}"


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Which vectors can be compared with each other, and their width."""

    fingerprint: str
    dimension: int


def vector_space(checkpoint: Checkpoint) -> VectorSpace:
    """Return the space of the vectors of a checkpoint and its reading share."""
    marked = mark_fingerprint(checkpoint.fingerprint, checkpoint.reading_share)
    return VectorSpace(marked, checkpoint.dimension)


def split_fingerprint(marked: str) -> tuple[str, float]:
    """Return what `mark_fingerprint` was given; of vectors of another method, the whole and 1."""
    fingerprint, _, marks = marked.partition("-")
    method, _, share = marks.partition("-")
    try:
        return (fingerprint, check_share(float(share))) if method == METHOD else (marked, WHOLE)
    except ValueError:
        return marked, WHOLE
