"""A tiny model, and documents of random block vectors, for the tests of training."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoder.checkpoint import Checkpoint, load_checkpoint
from training.batch import DocumentArrays
from training.export.create import load_model
from training.models.colde import Colde, ColdeConfig
from training.models.ernie_doc import ErnieDoc
from training.models.smith import Smith, SmithConfig

SIZES: dict[str, Any] = {
    "vocabulary_size": 50, "block_length": 8, "max_blocks": 8, "hidden_size": 16,
    "intermediate_size": 32, "attention_heads": 2, "sentence_layers": 2, "dimension": 12,
    "pooling": "mean",
}  # fmt: skip


@pytest.fixture(scope="session")
def checkpoint(tiny_ernie_doc: Path) -> Checkpoint:
    """A tiny ERNIE-Doc; a file of tests may have another checkpoint by this name."""
    return load_checkpoint(tiny_ernie_doc)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> ErnieDoc:
    model = load_model(checkpoint)
    assert isinstance(model, ErnieDoc)
    return model


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors this small gain nothing from a second thread, and wait for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def tiny_model() -> Callable[..., Smith]:
    """Make a model with random weights, the same in every call."""

    def make(dropout: float = 0.0) -> Smith:
        torch.manual_seed(5)
        own = {"document_layers": 1, "combine": "attention", "attention_size": 4}
        return Smith(SmithConfig(**SIZES, **own, dropout=dropout))

    return make


@pytest.fixture
def tiny_colde_model() -> Callable[..., Colde]:
    """Make a CoLDE with random weights, the same in every call."""

    def make(dropout: float = 0.0) -> Colde:
        torch.manual_seed(5)
        own = {"max_sections": 3, "chunk_heads": 2, "lstm_size": 12}
        model = Colde(ColdeConfig(**SIZES, **own, dropout=dropout))
        with torch.no_grad():  # away from where sections and chunks are all alike
            for parameter in model.document_encoder.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.2)
        return model

    return make


@pytest.fixture
def documents() -> list[DocumentArrays]:
    """Nine documents of 1 to 8 blocks; the first two blocks of each with its tokens."""
    random = np.random.default_rng(3)
    result = []
    for blocks in (1, 2, 3, 8, 5, 1, 4, 7, 2):
        vectors = random.normal(size=(blocks, 16))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        places = list(range(min(2, blocks)))
        tokens = [random.integers(5, 50, size=random.integers(3, 9)) for _ in places]
        result.append(DocumentArrays(vectors.astype(np.float16), places=places, tokens=tokens))
    return result
