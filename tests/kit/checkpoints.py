"""Tiny checkpoints: created once for each state of the sources that they depend on, and cached.

The cache is a folder of the user (`XDG_CACHE_HOME`), which all workers, runs and checkouts share;
every session has its copies, so that a test that changes one harms no later run.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from encoder.checkpoint import DEFAULT_CHECKPOINT, TOKENIZER, Checkpoint, load_checkpoint

if TYPE_CHECKING:
    from training.export.create import Recipe

ROOT = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "longmatch-tests"
SOURCES = (
    *("encoder/*.py", "encoder/terms/*.py", "encoder/reranker/*.py"),
    *("training/batch.py", "training/term_channel.py", "training/trained_checkpoint.py"),
    *("training/export/*.py", "training/models/*.py"),
    *("tests/kit/make_checkpoints.py", "tests/kit/sentence_models.py"),
)
LIBRARIES = (
    *("numpy", "onnx", "onnxruntime", "onnxscript", "safetensors", "sentence-transformers"),
    *("tokenizers", "torch", "transformers"),
)
OLD_SECONDS = 7 * 86_400
RERANKER = "reranker"  # whose golden batch is of pairs
SENTENCE_MODEL = "sentence-"  # and its name


def sources_digest(root: Path = ROOT) -> str:
    """Return a digest of everything that a tiny checkpoint depends on."""
    digest = hashlib.sha256(sys.version.encode())
    for library in LIBRARIES:
        digest.update(f"{library} {version(library)}\n".encode())
    for source in SOURCES:
        for file in sorted(root.glob(source)):
            digest.update(f"{file.relative_to(root)}\n".encode() + file.read_bytes())
    digest.update((DEFAULT_CHECKPOINT / TOKENIZER).read_bytes())
    return digest.hexdigest()[:16]


class CheckpointCache:
    """Folders of tiny checkpoints, each made by the first process that asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / sources_digest()
        self._folder.mkdir(parents=True, exist_ok=True)
        for other in folder.iterdir():
            if other != self._folder and time.time() - other.stat().st_mtime > OLD_SECONDS:
                shutil.rmtree(other, ignore_errors=True)

    def find(self, name: str) -> Path:
        """Return the folder of a checkpoint, which must not be changed; make it if need be."""
        kept = self._folder / f"tiny-{name}"
        with FileLock(self._folder / f"{name}.lock"):
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=self._folder) as place:
                    made = Path(place) / kept.name
                    self.make(name, made)
                    made.rename(kept)
        return kept

    def make(self, name: str, target: Path) -> None:
        """Write a checkpoint into a new folder."""
        import torch

        if name.startswith(SENTENCE_MODEL):
            from tests.kit.sentence_models import make_sentence_model

            with torch.random.fork_rng():
                make_sentence_model(target, name.removeprefix(SENTENCE_MODEL))
            return
        from tests.kit.make_checkpoints import MAKERS, shorten_golden_batch

        with torch.random.fork_rng():  # tests get the random numbers they would get without this
            MAKERS[name](target, self.find)
        if name != RERANKER:
            shorten_golden_batch(target)


@pytest.fixture(scope="session")
def copy_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Copy a tiny checkpoint into a new folder: `copy_checkpoint("smith")`."""
    cache = CheckpointCache(CACHE)

    def copy(name: str) -> Path:
        kept = cache.find(name)
        return Path(shutil.copytree(kept, tmp_path_factory.mktemp("checkpoint") / kept.name))

    return copy


@pytest.fixture(scope="session")
def tiny_recipe() -> "Recipe":
    """Blocks of 16 tokens, 64 of them, 32 wide."""
    from tests.kit.make_checkpoints import TINY

    return TINY


@pytest.fixture(scope="session")
def tiny_bert(copy_checkpoint: Callable[[str], Path]) -> Path:
    """A BERT-architecture checkpoint folder as a hub would give it."""
    return copy_checkpoint("bert")


@pytest.fixture(scope="session")
def tiny_weights(copy_checkpoint: Callable[[str], Path]) -> Checkpoint:
    """A checkpoint with weights and no graphs; do not change it."""
    return load_checkpoint(copy_checkpoint("weights"))


@pytest.fixture(scope="session")
def tiny_checkpoint(copy_checkpoint: Callable[[str], Path]) -> Path:
    """The directory of a tiny SMITH with graphs of every precision; do not change it."""
    return copy_checkpoint("smith")


@pytest.fixture(scope="session")
def tiny_colde(copy_checkpoint: Callable[[str], Path]) -> Path:
    """The directory of a tiny CoLDE with graphs of every precision; do not change it."""
    return copy_checkpoint("colde")


@pytest.fixture(scope="session")
def tiny_ernie_doc(copy_checkpoint: Callable[[str], Path]) -> Path:
    """The directory of a tiny ERNIE-Doc with graphs of every precision; do not change it."""
    return copy_checkpoint("ernie-doc")


@pytest.fixture(scope="session")
def sentence_model(copy_checkpoint: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return a folder that sentence-transformers saved, by its name; do not change it."""
    return cache(lambda name: copy_checkpoint(f"{SENTENCE_MODEL}{name}"))


@pytest.fixture(scope="session")
def tiny_terms(copy_checkpoint: Callable[[str], Path]) -> Path:
    """The directory of the tiny SMITH grown a term channel, with all graphs; do not change it."""
    return copy_checkpoint("terms")


@pytest.fixture(scope="session")
def tiny_reranker(copy_checkpoint: Callable[[str], Path]) -> Path:
    """The directory of a tiny reranker with both graphs; do not change it."""
    return copy_checkpoint("reranker")
