"""The checkpoint of a reranker: one directory with all that a cross-encoder is made of.

config.json           what it reads of a pair and how large it is
tokenizer.json        the WordPiece tokenizer
manifest.json         SHA-256 of each file, and of the weights that the graph was made from
golden.npz            golden pairs with the logits that the model gives for them
parity.json           how far each graph is from the model on the golden pairs
rule.json             optional: how its logits and the scores of the first stage become one score,
                      and what that score is worth; see encoder/reranker/score_fusion.py
<precision>/          cross_encoder.onnx, one graph for every length up to `length`
weights.safetensors   the weights, for training and export; serving does not need them
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.checkpoint import (
    CONFIG,
    GOLDEN,
    MANIFEST,
    PARITY,
    TOKENIZER,
    WEIGHTS,
    file_digest,
    read_verified,
)
from encoder.errors import CheckpointError

FORMAT = 1
ARCHITECTURE = "match-ignition"
RERANKER_PRECISIONS = ("int8", "fp32")
PAIR_GRAPH = "cross_encoder.onnx"
RULE = "rule.json"
SHIPPED = Path(__file__).parents[1] / "checkpoints"


@dataclass(frozen=True, slots=True)
class PairShape:
    """What the cross-encoder is given of a pair of texts.

    Attributes:
        length: tokens of a pair at most, special tokens included.
        sentences: of each text at most (lambda).
        lead_sentences: how many of them are the first ones of the text, whatever their rank.
        sentence_tokens: of one sentence at most; the rest of it is left out.
        most_sentences: of a text that the sentence-level filter looks at, the first ones.
        language: ISO 639-1 code, for the sentence splitter.
        filtered: whether the sentence-level filter chooses; else a text is read from its beginning.
    """

    length: int
    sentences: int
    lead_sentences: int = 0
    sentence_tokens: int = 64
    most_sentences: int = 500
    language: str = "en"
    filtered: bool = True

    def __post_init__(self) -> None:
        if self.length < 8 or self.sentence_tokens < 1 or self.most_sentences < 1:
            raise ValueError("a pair takes 8 tokens and a sentence of one token at least")
        if not 0 <= self.lead_sentences <= self.sentences or self.sentences < 1:
            raise ValueError("lead_sentences is from 0 to sentences, which is at least 1")


@dataclass(frozen=True, slots=True)
class RerankerCheckpoint:
    """What is written in the directory of a reranker; opening one loads no tensor.

    Attributes:
        directory: where it lies.
        name: for people.
        fingerprint: SHA-256, in hex, over configuration, tokenizer and weights.
        pair: what is read of a pair.
        start_token: token id that opens a pair ([CLS]).
        end_token: token id that closes each text ([SEP]).
        padding_token: token id of padding.
        model: the other fields of the architecture's configuration.
        precisions: those whose graph is present.
        files: SHA-256, in hex, of each file by its name relative to the directory.
    """

    directory: Path
    name: str
    fingerprint: str
    pair: PairShape
    start_token: int
    end_token: int
    padding_token: int
    model: Mapping[str, Any]
    precisions: tuple[str, ...]
    files: Mapping[str, str]


def find_reranker(name: Path) -> Path:
    """Return the directory of a reranker; a bare name is that of one that ships."""
    shipped = SHIPPED / name
    return shipped if not name.exists() and len(name.parts) == 1 and shipped.is_dir() else name


def load_reranker_checkpoint(directory: Path) -> RerankerCheckpoint:
    """Open the directory of a reranker and verify its configuration and tokenizer.

    Raises:
        CheckpointError: a file is missing, changed or not understood; the message names it.
    """
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT:
            raise CheckpointError(f"{directory / MANIFEST}: format {manifest['format']!r}")
        files = {str(name): str(digest) for name, digest in manifest["files"].items()}
        config = json.loads(read_verified(directory, files, CONFIG))
        if config.pop("architecture", None) != ARCHITECTURE:
            raise CheckpointError(f"{directory} is not the checkpoint of a reranker")
        read_verified(directory, files, TOKENIZER)
        return RerankerCheckpoint(
            directory=directory,
            fingerprint=_fingerprint(files, str(manifest["weights"])),
            pair=PairShape(**config.pop("pair")),
            precisions=tuple(p for p in RERANKER_PRECISIONS if f"{p}/{PAIR_GRAPH}" in files),
            files=files,
            **config,
        )
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be read: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error


def write_reranker_config(directory: Path, config: Mapping[str, Any]) -> None:
    """Write `config.json`: the fields of `RerankerCheckpoint` that are not read off elsewhere."""
    content = json.dumps({"architecture": ARCHITECTURE, **config}, indent=2) + "\n"
    (directory / CONFIG).write_text(content, encoding="utf-8")


def write_reranker_manifest(directory: Path) -> None:
    """Write `manifest.json` over the files that are there.

    The digest of the weights is kept from the former manifest where they are not there.
    """
    weights = directory / WEIGHTS
    if weights.exists():
        digest = file_digest(weights)
    else:
        digest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))["weights"]
    names = [CONFIG, TOKENIZER, GOLDEN, PARITY, RULE]
    names += [f"{precision}/{PAIR_GRAPH}" for precision in RERANKER_PRECISIONS]
    files = {name: file_digest(directory / name) for name in names if (directory / name).exists()}
    manifest = {"format": FORMAT, "weights": digest, "files": files}
    (directory / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def _fingerprint(files: Mapping[str, str], weights: str) -> str:
    parts = [files[CONFIG], files[TOKENIZER], weights]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
