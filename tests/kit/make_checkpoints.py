"""How the tiny checkpoints of the tests are made: random weights, really written and exported.

Each of MAKERS writes one folder; a maker asks for another folder by its name. Their golden batches
are short: every engine that a test opens computes its batch twice.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.onnx._internal._lazy_import import onnxscript_apis

from encoder import checkpoint
from encoder.golden import GOLDEN_TEXTS, read_golden_batch
from encoder.terms import term_channel
from encoder.terms.term_table import count_words, read_term_vocabulary
from encoder.tokenizer import BlockTokenizer, open_tokenizer
from training.export import create, export
from training.export.export import export_checkpoint, write_golden_batch
from training.export.export_reranker import export_reranker
from training.recipe import TrainingRecipe
from training.term_channel import fit_term_table, open_model, term_weights
from training.trained_checkpoint import write_trained, write_trained_reranker

# The exporter reads the sources of its 500 translations again for each graph: half a second. The
# library that has them is imported by the first export.
onnxscript_apis.get_torchlib_ops = cache(lambda: onnxscript_apis.__getattr__("get_torchlib_ops")())

Find = Callable[[str], Path]
FREQUENT = 8_000  # tokens of the shipped vocabulary are kept
GOLDEN_DOCUMENTS = 4  # are kept
PRECISIONS = ("fp32", "fp16", "int8")
TINY = create.Recipe(
    name="tiny", architecture="smith", block_length=16, max_blocks=64, long_sentence="split",
    language="en", dimension=32, initialise_from_bert=True, begin_as_mean=True,
    model={
        "sentence_layers": 2, "document_layers": 1, "pooling": "mean", "combine": "attention",
        "attention_size": 8,
    },
)  # fmt: skip
TINY_COLDE = TINY.model_copy(
    update={
        "name": "tiny-colde",
        "architecture": "colde",
        "model": {
            "sentence_layers": 1, "max_sections": 3, "chunk_heads": 2, "lstm_size": 16,
            "pooling": "mean", "aggregate": "lstm_and_mean",
        },
        "begin_as_mean": False,  # so that every part of the graph counts
    }
)  # fmt: skip
TINY_ERNIE_DOC = TINY.model_copy(
    update={
        "name": "tiny-ernie-doc",
        "architecture": "ernie-doc",
        "model": {"sentence_layers": 2, "memory_length": 8},
        "begin_as_mean": False,  # which an ERNIE-Doc cannot
    }
)


def make_bert(target: Path, _: Find) -> None:
    """Write a BERT-architecture checkpoint as a hub would give it: 2 layers, 32 wide, random."""
    target.mkdir()
    tokenizer = small_tokenizer()
    vocabulary = len(json.loads(tokenizer)["model"]["vocab"])
    config = {
        "model_type": "bert", "vocab_size": vocabulary, "hidden_size": 32, "intermediate_size": 64,
        "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64,
        "layer_norm_eps": 1e-12,
    }  # fmt: skip
    (target / "config.json").write_text(json.dumps(config))
    (target / checkpoint.TOKENIZER).write_text(tokenizer, encoding="utf-8")
    torch.manual_seed(1)
    save_file(bert_tensors(vocabulary), target / "model.safetensors")


def small_tokenizer() -> str:
    """Return the shipped tokenizer with a part of its vocabulary, which is read sooner.

    It has the special tokens, the frequent words, and single characters of all scripts.
    """
    content = json.loads((checkpoint.DEFAULT_CHECKPOINT / checkpoint.TOKENIZER).read_bytes())
    rows = content["model"]["vocab"]
    kept = [token for token in rows if rows[token] < FREQUENT or len(token.removeprefix("##")) == 1]
    content["model"]["vocab"] = {token: row for row, token in enumerate(sorted(kept, key=rows.get))}
    return json.dumps(content)


def bert_tensors(vocabulary: int) -> dict[str, torch.Tensor]:
    """Random weights under the names that BERT checkpoints use."""
    tensors = {
        "embeddings.word_embeddings.weight": torch.randn(vocabulary, 32),
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


def make_weights(target: Path, find: Find) -> None:
    """Write a checkpoint with weights and no graphs."""
    create.create_checkpoint(TINY, str(find("bert")), target)


def make_smith(target: Path, find: Find) -> None:
    """Write the same with graphs of every precision."""
    shutil.copytree(find("weights"), target)
    export_checkpoint(checkpoint.load_checkpoint(target), PRECISIONS)


def make_colde(target: Path, find: Find) -> None:
    """Write a CoLDE with graphs of every precision."""
    export_checkpoint(create.create_checkpoint(TINY_COLDE, str(find("bert")), target), PRECISIONS)


def make_ernie_doc(target: Path, find: Find) -> None:
    """Write an ERNIE-Doc with graphs of every precision, its distances at random."""
    created = create.create_checkpoint(
        TINY_ERNIE_DOC, str(find("bert")), target.with_name("created")
    )
    model = create.load_model(created)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "distance_embedding" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    channel = term_channel.open_term_channel(created)
    written = write_trained(model, channel, created, target, "tiny-ernie-doc")
    export_checkpoint(written, PRECISIONS)


def make_terms(target: Path, find: Find) -> None:
    """Write the checkpoint `weights` with a term channel, and graphs of every precision."""
    terms = {"dimension": 16, "buckets": 64, "span": 16}
    terms |= {"hashed_dimension": 8}
    objectives = [{"kind": "halves"}]
    recipe = TrainingRecipe.parse(
        {"name": "t", "steps": 1, "documents": 2, "terms": terms, "objective": objectives}
    )
    start = checkpoint.load_checkpoint(find("weights"))
    tokenizer = BlockTokenizer(start)
    vocabulary = read_term_vocabulary(open_tokenizer(start), recipe.terms.buckets)
    corpus = [vocabulary.count([b]) for text in GOLDEN_TEXTS for b in tokenizer(text).blocks]
    words = term_channel.hashed_vocabulary(start)
    whole = [count_words(words, tokenizer(text).blocks) for text in GOLDEN_TEXTS]
    channel = term_channel.TermChannel(
        vocabulary,
        fit_term_table([corpus], vocabulary.rows, recipe.terms, 0),
        term_channel.HashedTerms(
            words, term_weights([whole], words.rows), recipe.terms.hashed_dimension
        ),
    )
    model = open_model(start, recipe, channel)
    written = write_trained(model, channel, start, target, "tiny-terms")
    same = find("smith") / "fp32" / checkpoint.BLOCK_GRAPH  # the parity check would notice another
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_export_block_encoder", lambda _, path: shutil.copy(same, path))
        export_checkpoint(written, PRECISIONS)


def make_reranker(target: Path, find: Find) -> None:
    """Write a reranker with graphs of both precisions, its head initialised at random."""
    recipe = create.RerankerRecipe(
        name="tiny-reranker",
        architecture="match-ignition",
        pair={"length": 48, "sentences": 4, "lead_sentences": 1, "sentence_tokens": 16},
        model={"layers": 2, "reduction": 0.2},
    )
    created = create.create_reranker(recipe, str(find("bert")), target.with_name("created"))
    model = create.load_reranker_model(created)
    torch.manual_seed(2)
    torch.nn.init.normal_(model.projection.weight, std=1.0)
    export_reranker(
        write_trained_reranker(model, created, target, "tiny-reranker"), ["fp32", "int8"]
    )


def shorten_golden_batch(folder: Path) -> None:
    """Leave the first documents of the golden batch of an exported checkpoint."""
    if not (folder / checkpoint.GOLDEN).exists():  # it has no graphs
        return
    whole = read_golden_batch(checkpoint.load_checkpoint(folder))
    blocks = sum(whole.sizes[:GOLDEN_DOCUMENTS])
    kept = replace(
        whole,
        blocks=whole.blocks[:blocks],
        sizes=whole.sizes[:GOLDEN_DOCUMENTS],
        block_vectors=whole.block_vectors[:blocks],
        term_features=whole.term_features[:GOLDEN_DOCUMENTS],
        document_vectors=whole.document_vectors[:GOLDEN_DOCUMENTS],
    )
    write_golden_batch(folder, kept)
    checkpoint.write_manifest(folder)


MAKERS: Mapping[str, Callable[[Path, Find], None]] = {
    "bert": make_bert, "weights": make_weights, "smith": make_smith, "colde": make_colde,
    "ernie-doc": make_ernie_doc, "terms": make_terms, "reranker": make_reranker,
}  # fmt: skip
