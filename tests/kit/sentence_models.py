"""Tiny sentence-transformers folders of several architectures, with random weights."""

from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Normalize,
    Pooling,
    StaticEmbedding,
    Transformer,
)
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from torch import nn
from torch.export import Dim
from transformers import AutoModel, PreTrainedTokenizerFast
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from encoder.golden import GOLDEN_TEXTS
from tests.kit.embedding_server import LIMIT
from training.export.graphs import export_graph

# By name: the kind of model, its tokenizer, and how it pools.
KINDS = {
    "bert": ("bert", "wordpiece", "mean"),
    "onnx": ("bert", "wordpiece", "mean"),
    "xlm-r": ("xlm-roberta", "unigram", "mean"),
    "mpnet": ("mpnet", "wordpiece", "cls"),
    "modernbert": ("modernbert", "bytes", "cls"),
    "decoder": ("qwen3", "bytes", "lasttoken"),
}
PROMPTS = {"query": "query: ", "document": "passage: "}
_WIDTH = 32


def make_sentence_model(folder: Path, name: str) -> None:
    """Write a sentence-transformers folder of one of `KINDS`, or of a static model."""
    if name == "static":
        _make_static_model(folder)
        return
    kind, pieces, pooling = KINDS[name]
    tokenizer = _tokenizer(pieces)
    raw = folder.with_name("raw")
    tokenizer.save_pretrained(raw)
    torch.manual_seed(len(kind))
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": _WIDTH,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": LIMIT + 2,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.cls_token_id,
        "eos_token_id": tokenizer.sep_token_id,
    }
    if kind == "qwen3":
        sizes |= {"num_key_value_heads": 2, "head_dim": 8}
    if kind == "modernbert":
        sizes |= {"cls_token_id": sizes["bos_token_id"], "sep_token_id": sizes["eos_token_id"]}
    AutoModel.from_config(CONFIG_MAPPING[kind](initializer_range=0.2, **sizes)).save_pretrained(raw)
    transformer = Transformer(str(raw), max_seq_length=LIMIT)
    model = SentenceTransformer(
        modules=[transformer, Pooling(_WIDTH, pooling_mode=pooling), Normalize()],
        prompts=PROMPTS,
        device="cpu",
    )
    model.save(str(folder), create_model_card=False)
    if name == "onnx":
        _replace_weights(folder)


def _make_static_model(folder: Path) -> None:
    torch.manual_seed(6)
    tokenizer = _tokenizer("wordpiece")
    table = StaticEmbedding(tokenizer, embedding_weights=torch.randn(len(tokenizer), _WIDTH))
    model = SentenceTransformer(modules=[table, Normalize()], prompts=PROMPTS, device="cpu")
    model.save(str(folder), create_model_card=False)


class _TokenVectors(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.model(input_ids, attention_mask).last_hidden_state
        return vectors


def _replace_weights(folder: Path) -> None:
    """Write the graph of a model, and put its weights beside it, where nobody reads them."""
    (folder / "onnx").mkdir()
    ids = torch.ones((2, 8), dtype=torch.int64)
    export_graph(
        _TokenVectors(AutoModel.from_pretrained(folder).eval()),
        {"input_ids": ids, "attention_mask": ids.clone()},
        {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in ("input_ids", "attention_mask")},
        ["last_hidden_state"],
        folder / "onnx" / "model.onnx",
    )
    (folder / "model.safetensors").rename(folder / "onnx" / "torch.safetensors")


def _tokenizer(pieces: str) -> PreTrainedTokenizerFast:
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    trained = {"vocab_size": 600, "special_tokens": special, "show_progress": False}
    if pieces == "wordpiece":
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer: Any = trainers.WordPieceTrainer(**trained)
    elif pieces == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        parts = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **trained)
    else:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(initial_alphabet=alphabet, **trained)
    tokenizer.train_from_iterator(GOLDEN_TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=LIMIT,
        pad_token="<pad>",
        cls_token="<s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )
