"""The checkpoint of a reranker: the directory with everything a cross-encoder consists of.

config.json           what it reads of a pair, and its sizes
tokenizer.json        the WordPiece tokenizer
manifest.json         SHA-256 of each file, and of the weights that the graph was made from
golden.npz            golden pairs with the logits that the model gives for them
parity.json           how far each graph is from the model on the golden pairs
rule.json             optional: how its logits and the scores of the first stage become one score,
                      and how much that score counts; see encoder/reranker/score_fusion.py
<precision>/          cross_encoder.onnx, one graph for every length up to `length`
weights.safetensors   the weights in half precision, for training and export; serving does not
                      need them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.checkpoint import PAIR_GRAPH, read_config, read_manifest
from encoder.errors import CheckpointError

RERANKER_PRECISIONS = ("int8", "fp32")


@dataclass(frozen=True, slots=True)
class PairShape:
    """What the cross-encoder reads of a pair of texts.

    Attributes:
        length: tokens of a pair at most, special tokens included.
        sentences: of each text at most (lambda).
        lead_sentences: how many of them are the first of the text, regardless of rank.
        sentence_tokens: of one sentence at most; the rest of it is left out.
        most_sentences: of a text that are ranked, from the first.
        language: ISO 639-1 code, for the sentence splitter.
        filtered: whether sentence ranking chooses; else a text is read from its beginning.
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
    """The description of the directory of a reranker; loading it reads no tensor.

    Attributes:
        directory: its location.
        name: for display.
        architecture: "match-ignition".
        fingerprint: SHA-256, in hex, over configuration, tokenizer and weights.
        pair: what is read of a pair.
        start_token: token id that opens a pair ([CLS]).
        end_token: token id that closes each text ([SEP]).
        padding_token: token id of padding.
        model: the other fields of the architecture's configuration.
        precisions: of the graphs that are present.
        files: SHA-256, in hex, of each file by its name relative to the directory.
    """

    directory: Path
    name: str
    architecture: str
    fingerprint: str
    pair: PairShape
    start_token: int
    end_token: int
    padding_token: int
    model: Mapping[str, Any]
    precisions: tuple[str, ...]
    files: Mapping[str, str]


def load_reranker_checkpoint(directory: Path) -> RerankerCheckpoint:
    """Open the directory of a reranker and verify its configuration and tokenizer."""
    manifest = read_manifest(directory)
    config = read_config(directory, manifest)
    if "pair" not in config:
        raise CheckpointError(f"{directory} is not the checkpoint of a reranker")
    try:
        return RerankerCheckpoint(
            directory=directory,
            fingerprint=manifest.fingerprint(),
            pair=PairShape(**config.pop("pair")),
            precisions=tuple(p for p in RERANKER_PRECISIONS if manifest.has(p, PAIR_GRAPH)),
            files=manifest.files,
            **config,
        )
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error
