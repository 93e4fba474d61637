"""Sizes and recipes of the benchmark: small models, so that two cores suffice."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

RANDOM, PRETRAINED = "random", "pretrained"  # what a fine-tuned model begins with
SMITH, ERNIE_DOC = "smith", "ernie-doc"
ARCHITECTURES = (SMITH, ERNIE_DOC)
PRETRAINING, TUNING = "pretraining", "tuning"
_WORDS_OF_A_BATCH = 16_384  # tokens of one forward pass in fine-tuning, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the benchmark is.

    Attributes:
        vocabulary: WordPieces, chosen on the texts of pretraining.
        vocabulary_documents: of these texts, the first so many.
        files: of the folder of texts, the first so many.
        hidden_size: of both models.
        layers: of the sentence level of SMITH, and of ERNIE-Doc.
        document_layers: of SMITH.
        tokens: of a document that are read, in both stages and in the measurement.
        block_length: tokens of a sentence block of SMITH.
        segment_length: tokens of a segment of ERNIE-Doc.
        pretraining_steps: by architecture.
        pretraining_documents: of such a step.
        tuning_steps: by architecture.
        tuning_documents: of such a step.
        rate: of fine-tuning.
        seeds: of fine-tuning; of random weights, too.
        validations: of pretraining, beside that before its first step.
    """

    vocabulary: int = 8_192
    vocabulary_documents: int = 2_000
    files: int = 2
    hidden_size: int = 128
    layers: int = 3
    document_layers: int = 1
    tokens: int = 512
    block_length: int = 32
    segment_length: int = 128
    pretraining_steps: Mapping[str, int]
    pretraining_documents: int = 8
    tuning_steps: Mapping[str, int]
    tuning_documents: int = 32
    rate: float = 3e-4
    seeds: tuple[int, ...] = (0, 1, 2)
    validations: int = 12


def longer(size: Size, times: int) -> Size:
    """Return a size with so many times the steps of pretraining; fine-tuning stays as it is."""
    steps = {name: times * count for name, count in size.pretraining_steps.items()}
    return replace(size, pretraining_steps=steps)


def blocks_of(architecture: str, size: Size) -> int:
    """Return how many blocks or segments of a document a model reads."""
    of_block = size.block_length if architecture == SMITH else size.segment_length
    return size.tokens // of_block


def creation(architecture: str, size: Size) -> dict[str, Any]:
    """Return the recipe of a model with random weights (`encoder.export.create.Recipe`)."""
    sizes = {
        "hidden_size": size.hidden_size,
        "intermediate_size": 4 * size.hidden_size,
        "attention_heads": 4,
        "sentence_layers": size.layers,
    }
    # The paper's pooling is [CLS], which so short a training hardly reaches (docs/ablations.md).
    of_smith = {"document_layers": size.document_layers, "pooling": "mean", "combine": "normal"}
    of_ernie = {"memory_length": size.segment_length // 2}
    return {
        "name": f"{architecture}-small",
        "architecture": architecture,
        "block_length": size.block_length if architecture == SMITH else size.segment_length,
        "max_blocks": blocks_of(architecture, size),
        "long_sentence": "split",
        "language": "en",
        "dimension": size.hidden_size,
        "initialise_from_bert": False,
        "begin_as_mean": False,
        "model": sizes | (of_smith if architecture == SMITH else of_ernie),
    }


def pretraining(architecture: str, size: Size) -> dict[str, Any]:
    """Return the recipe of pretraining: WP+SP for SMITH, words and order for ERNIE-Doc."""
    objective = {"kind": "wp+sp"} if architecture == SMITH else {"kind": "reorder", "chunks": 3}
    steps = size.pretraining_steps[architecture]
    return _whole_documents(architecture, size) | {
        "name": f"{architecture}-{PRETRAINING}",
        "steps": steps,
        "documents": size.pretraining_documents,
        "dropout": 0.0,  # no text is read often enough to be memorised
        "validation_interval": max(1, steps // size.validations),
        "patience": size.validations,
        "optimiser": _optimiser(1e-3, steps),
        "objective": [objective],
    }


def tuning(architecture: str, size: Size, seed: int) -> dict[str, Any]:
    """Return the recipe of fine-tuning on links, the same whatever a model begins with."""
    steps = size.tuning_steps[architecture]
    return _whole_documents(architecture, size) | {
        "name": f"{architecture}-{TUNING}",
        "steps": steps,
        "seed": seed,
        "documents": size.tuning_documents,
        "chunk": max(1, _WORDS_OF_A_BATCH // size.tokens),
        "dropout": 0.1,
        "validation_interval": steps,
        "optimiser": _optimiser(size.rate, steps),
        "objective": [{"kind": "links", "temperature": 0.05}],
    }


def _whole_documents(architecture: str, size: Size) -> dict[str, Any]:
    blocks = blocks_of(architecture, size)
    return {
        "max_blocks": blocks,
        "checkpoint_interval": 20,
        "sentence_level": {"trained": "all", "blocks": blocks},
    }


def _optimiser(rate: float, steps: int) -> dict[str, Any]:
    rates = {"document_rate": rate, "sentence_rate": rate}
    return {**rates, "warm_up": steps // 10, "decay": "linear"}
