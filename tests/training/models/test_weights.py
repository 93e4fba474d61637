"""Weights of BERT checkpoints, and the weights of a checkpoint."""

import json
import math
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from encoder import checkpoint
from encoder.errors import CheckpointError
from training.export.create import load_model
from training.models import weights
from training.models.smith import BlockEncoder, SmithConfig

IDS = [101, 2023, 2003, 1037, 3231, 102]


def config_for(folder: Path, **changes: object) -> SmithConfig:
    sizes = weights.sizes_of_bert(weights.read_bert_config(folder))
    fields = {"block_length": 16, "sentence_layers": 2, "pooling": "mean"} | sizes | changes
    return SmithConfig(**fields)


def test_each_tensor_of_bert_has_its_place(tiny_bert: Path) -> None:
    """What the sentence level computes with them is compared in `test_formulas.py`."""
    encoder = BlockEncoder(config_for(tiny_bert)).eval()
    weights.load_bert_into(encoder, tiny_bert)
    bert, loaded = load_file(tiny_bert / "model.safetensors"), encoder.state_dict()
    words = "embeddings.{}_embeddings.weight"
    assert torch.equal(loaded["token_embedding.weight"], bert[words.format("word")])
    positions = bert[words.format("position")][:16] + bert[words.format("token_type")][0]
    assert torch.equal(loaded["position_embedding.weight"], positions)
    assert torch.equal(loaded["projection.weight"], torch.eye(32))
    assert not loaded["projection.bias"].any()
    places = {
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "intermediate": "intermediate.dense",
        "output": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    for kind, number in product(("weight", "bias"), range(2)):
        norm = bert[f"embeddings.LayerNorm.{kind}"]
        assert torch.equal(loaded[f"embedding_norm.{kind}"], norm)
        ours, theirs = f"layers.{number}", f"encoder.layer.{number}"
        for name, place in places.items():
            expected = bert[f"{theirs}.{place}.{kind}"]
            assert torch.equal(loaded[f"{ours}.{name}.{kind}"], expected)
        parts = [bert[f"{theirs}.attention.self.{p}.{kind}"] for p in ("query", "key", "value")]
        joined = loaded[f"{ours}.attention.query_key_value.{kind}"]
        assert torch.equal(joined, torch.cat(parts))


def test_names_with_the_prefix_bert_are_understood(tiny_bert: Path, tmp_path: Path) -> None:
    encoder = BlockEncoder(config_for(tiny_bert))
    for damage in (None, b"no tensors here"):
        if damage is not None:
            (tmp_path / "model.safetensors").write_bytes(damage)
        with pytest.raises(CheckpointError, match=r"model\.safetensors"):
            weights.load_bert_into(encoder, tmp_path)
    source = load_file(tiny_bert / "model.safetensors")
    save_file({f"bert.{name}": t for name, t in source.items()}, tmp_path / "model.safetensors")
    weights.load_bert_into(encoder, tmp_path)
    words = source["embeddings.word_embeddings.weight"]
    assert torch.equal(encoder.token_embedding.weight, words)


def test_sizes_that_do_not_fit_are_named(tiny_bert: Path, tmp_path: Path) -> None:
    for changes, message in (
        ({"sentence_layers": 3}, "layer.2"),
        ({"block_length": 128}, "position_embedding"),
    ):
        with pytest.raises(CheckpointError, match=message):
            weights.load_bert_into(BlockEncoder(config_for(tiny_bert, **changes)), tiny_bert)
    for wrong in ({"model_type": "roberta"}, {"hidden_act": "relu"}):
        (tmp_path / "config.json").write_text(
            json.dumps(weights.read_bert_config(tiny_bert) | wrong)
        )
        with pytest.raises(CheckpointError, match=next(iter(wrong))):
            weights.read_bert_config(tmp_path)


def test_a_folder_is_found_and_a_missing_name_is_not(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert weights.find_bert(str(tiny_bert)) == tiny_bert
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="nobody/nothing"):
        weights.find_bert("nobody/nothing")


def test_weights_are_stored_in_half_precision(
    tiny_bert: Path, tiny_weights: checkpoint.Checkpoint
) -> None:
    kept = load_file(tiny_weights.directory / checkpoint.WEIGHTS)
    assert {tensor.dtype for tensor in kept.values()} == {torch.float16}
    loaded = load_model(tiny_weights).state_dict()
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    words = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    expected = words.half().float()
    assert not torch.equal(expected, words)
    assert torch.equal(loaded["block_encoder.token_embedding.weight"], expected)


@pytest.mark.parametrize("wrong", [65_520.0, -70_000.0, math.nan])
def test_a_weight_beyond_half_precision_is_refused(tmp_path: Path, wrong: float) -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.bias[1] = wrong
    with pytest.raises(CheckpointError, match=f"bias: a weight of {abs(wrong):g} .* 65504"):
        weights.save_weights(layer, tmp_path)
    assert not (tmp_path / checkpoint.WEIGHTS).exists()


def test_damaged_weights_and_those_of_other_sizes_are_named(
    tiny_weights: checkpoint.Checkpoint, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_weights.directory, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    checkpoint.write_config(copy, config | {"model": config["model"] | {"attention_size": 4}})
    checkpoint.write_manifest(copy)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors does not fit the config"):
        load_model(checkpoint.load_checkpoint(copy))
    (copy / checkpoint.WEIGHTS).write_bytes((copy / checkpoint.WEIGHTS).read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"copy/weights\.safetensors is not the file that"):
        load_model(checkpoint.load_checkpoint(copy))
