"""What tests of more than one package share: a tiny checkpoint, really initialised and exported."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from encoder.checkpoint import DEFAULT_CHECKPOINT, TOKENIZER, Checkpoint
from encoder.export.create import (
    Recipe,
    RerankerRecipe,
    create_checkpoint,
    create_reranker,
    load_reranker_model,
    write_trained_reranker,
)
from encoder.export.export import export_checkpoint
from encoder.export.export_reranker import export_reranker
from encoder.golden import GOLDEN_TEXTS
from encoder.terms.feature_hashing import HashedTerms
from encoder.terms.term_channel import TermChannel, hashed_vocabulary
from encoder.terms.term_table import count_words, read_term_vocabulary
from encoder.tokenizer import BlockTokenizer, open_tokenizer
from tests.tools.redis_server import RedisServer, install_redis
from training.jobs.output import write_trained
from training.recipe import parse_training_recipe
from training.term_channel import fit_term_table, open_model, term_weights

pytest_plugins = [
    "tests.tools.index_fixtures",
    "tests.tools.page_fixtures",
    "tests.tools.process_fixtures",
    "tests.tools.service_fixtures",
]

TINY = Recipe(
    name="tiny",
    architecture="smith",
    block_length=16,
    max_blocks=64,
    long_sentence="split",
    language="en",
    dimension=32,
    initialise_from_bert=True,
    begin_as_mean=True,
    model={
        "sentence_layers": 2,
        "document_layers": 1,
        "pooling": "mean",
        "combine": "attention",
        "attention_size": 8,
    },
)


TINY_COLDE = TINY.model_copy(
    update={
        "name": "tiny-colde",
        "architecture": "colde",
        "model": {
            "sentence_layers": 2,
            "max_sections": 3,
            "chunk_heads": 2,
            "lstm_size": 16,
            "pooling": "mean",
            "aggregate": "lstm_and_mean",
        },
        "begin_as_mean": False,  # so that every part of the graph counts
    }
)


@pytest.fixture(scope="session")
def tiny_recipe() -> Recipe:
    """Blocks of 16 tokens, 64 of them, 32 wide."""
    return TINY


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT-architecture checkpoint folder as a hub would give it: 2 layers, 32 wide, random."""
    folder = tmp_path_factory.mktemp("bert")
    config = {
        "model_type": "bert",
        "vocab_size": 30_522,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": 64,
        "layer_norm_eps": 1e-12,
    }
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(DEFAULT_CHECKPOINT / TOKENIZER, folder / TOKENIZER)
    torch.manual_seed(1)
    save_file(bert_tensors(), folder / "model.safetensors")
    return folder


def bert_tensors() -> dict[str, torch.Tensor]:
    """Random weights under the names that BERT checkpoints use."""
    tensors = {
        "embeddings.word_embeddings.weight": torch.randn(30_522, 32),
        "embeddings.position_embeddings.weight": torch.randn(64, 32) * 0.1,
        "embeddings.token_type_embeddings.weight": torch.randn(2, 32) * 0.1,
        "embeddings.LayerNorm.weight": torch.ones(32),
        "embeddings.LayerNorm.bias": torch.zeros(32),
    }
    shapes = {
        "attention.self.query": (32, 32),
        "attention.self.key": (32, 32),
        "attention.self.value": (32, 32),
        "attention.output.dense": (32, 32),
        "intermediate.dense": (64, 32),
        "output.dense": (32, 64),
    }
    for layer in range(2):
        for name, shape in shapes.items():
            tensors[f"encoder.layer.{layer}.{name}.weight"] = torch.randn(shape) * 0.1
            tensors[f"encoder.layer.{layer}.{name}.bias"] = torch.randn(shape[0]) * 0.1
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            tensors[f"encoder.layer.{layer}.{name}.weight"] = torch.ones(32)
            tensors[f"encoder.layer.{layer}.{name}.bias"] = torch.zeros(32)
    return tensors


@pytest.fixture(scope="session")
def tiny_weights(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A checkpoint with weights and no graphs yet."""
    return create_checkpoint(TINY, str(tiny_bert), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_checkpoint(tiny_weights: Checkpoint) -> Path:
    """The directory of a tiny checkpoint with graphs of every precision; do not change it."""
    export_checkpoint(tiny_weights, ["fp32", "fp16", "int8"])
    return tiny_weights.directory


@pytest.fixture(scope="session")
def tiny_colde(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny CoLDE with graphs of every precision; do not change it."""
    directory = tmp_path_factory.mktemp("colde") / "tiny-colde"
    written = create_checkpoint(TINY_COLDE, str(tiny_bert), directory)
    export_checkpoint(written, ["fp32", "fp16", "int8"])
    return directory


@pytest.fixture(scope="session")
def tiny_terms(tiny_weights: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the tiny checkpoint grown a term channel, with all graphs; as above."""
    terms = {"dimension": 16, "residual_dimension": 10, "buckets": 64, "span": 6, "residual": 10}
    terms |= {"hashed_dimension": 8}
    objectives = [{"kind": "halves"}]
    recipe = parse_training_recipe(
        {"name": "t", "steps": 1, "documents": 2, "terms": terms, "objective": objectives}
    )
    tokenizer = BlockTokenizer(tiny_weights)
    vocabulary = read_term_vocabulary(open_tokenizer(tiny_weights), recipe.terms.buckets)
    corpus = [vocabulary.count(tokenizer(text).blocks) for text in GOLDEN_TEXTS]
    words = hashed_vocabulary(tiny_weights)
    whole = [count_words(words, tokenizer(text).blocks) for text in GOLDEN_TEXTS]
    channel = TermChannel(
        vocabulary,
        fit_term_table([corpus], vocabulary.rows, recipe.terms, 0),
        HashedTerms(words, term_weights([whole], words.rows), recipe.terms.hashed_dimension),
    )
    model = open_model(tiny_weights, recipe, channel)
    directory = tmp_path_factory.mktemp("terms") / "tiny-terms"
    written = write_trained(model, channel, tiny_weights, directory, "tiny-terms")
    export_checkpoint(written, ["fp32", "fp16", "int8"])
    return directory


@pytest.fixture(scope="session")
def tiny_reranker(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny reranker with both graphs, its head drawn at random; as above."""
    recipe = RerankerRecipe(
        name="tiny-reranker",
        architecture="match-ignition",
        pair={"length": 48, "sentences": 4, "lead_sentences": 1, "sentence_tokens": 16},
        model={"layers": 2, "reduction": 0.2},
    )
    created = create_reranker(recipe, str(tiny_bert), tmp_path_factory.mktemp("reranker"))
    model = load_reranker_model(created)
    torch.manual_seed(2)
    torch.nn.init.normal_(model.projection.weight, std=1.0)
    directory = tmp_path_factory.mktemp("reranker") / "tiny-reranker"
    written = write_trained_reranker(model, created, directory, "tiny-reranker")
    export_reranker(written, ["fp32", "int8"])
    return directory


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own."""
    install_redis()
    server = RedisServer(tmp_path)
    yield server
    server.close()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skipped test is a test that nobody runs: it fails the session."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
