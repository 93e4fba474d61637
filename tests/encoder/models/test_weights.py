"""The sentence level against BERT written out once more, in plain NumPy."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from encoder.checkpoint import (
    WEIGHTS,
    Checkpoint,
    load_checkpoint,
    write_config,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.export.create import load_model
from encoder.models.smith import BlockEncoder, SmithConfig
from encoder.models.weights import (
    find_bert,
    load_bert_into,
    read_bert_config,
    save_weights,
    sizes_of_bert,
)

IDS = [101, 2023, 2003, 1037, 3231, 102]
erf = np.vectorize(math.erf)


def config_for(folder: Path, **changes: object) -> SmithConfig:
    sizes = sizes_of_bert(read_bert_config(folder))
    fields = {"block_length": 16, "sentence_layers": 2, "pooling": "mean"} | sizes | changes
    return SmithConfig(**fields)


def bert_in_numpy(weights: dict[str, np.ndarray], ids: list[int], heads: int) -> np.ndarray:
    """Hidden states [T, H] of the last layer of BERT for one text."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    embeddings = "embeddings.{}_embeddings.weight"
    states = weights[embeddings.format("word")][ids]
    states = states + weights[embeddings.format("position")][: len(ids)]
    states = norm(states + weights[embeddings.format("token_type")][0], "embeddings.LayerNorm")
    for number in range(2):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            np.split(linear(states, f"{layer}.attention.self.{part}"), heads, axis=1)
            for part in ("query", "key", "value")
        )
        context = []
        for q, k, v in zip(query, key, value, strict=True):
            logits = np.exp(q @ k.T / math.sqrt(q.shape[1]))
            context.append(logits / logits.sum(1, keepdims=True) @ v)
        attended = linear(np.concatenate(context, axis=1), f"{layer}.attention.output.dense")
        states = norm(states + attended, f"{layer}.attention.output.LayerNorm")
        inner = linear(states, f"{layer}.intermediate.dense")
        inner = 0.5 * inner * (1 + erf(inner / math.sqrt(2)))
        states = norm(states + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return states


def test_the_sentence_level_computes_what_bert_computes(tiny_bert: Path) -> None:
    encoder = BlockEncoder(config_for(tiny_bert)).eval()
    load_bert_into(encoder, tiny_bert)
    weights = {n: t.double().numpy() for n, t in load_file(tiny_bert / "model.safetensors").items()}
    expected = bert_in_numpy(weights, IDS, heads=2)
    ids = torch.tensor([IDS])
    with torch.no_grad():
        states = encoder.token_states(ids, torch.ones_like(ids))[0].numpy()
        vector = encoder(ids, torch.ones_like(ids))[0].numpy()
    assert np.abs(states - expected).max() < 1e-4
    mean = expected.mean(0)
    assert np.abs(vector - mean / np.linalg.norm(mean)).max() < 1e-5


def test_names_with_the_prefix_bert_are_understood(tiny_bert: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_bert / "config.json", tmp_path)
    source = load_file(tiny_bert / "model.safetensors")
    save_file({f"bert.{name}": t for name, t in source.items()}, tmp_path / "model.safetensors")
    encoder = BlockEncoder(config_for(tmp_path))
    load_bert_into(encoder, tmp_path)
    name = "embeddings.word_embeddings.weight"
    assert torch.equal(encoder.token_embedding.weight, source[name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"sentence_layers": 3}, "layer.2"), ({"block_length": 128}, "position_embedding")],
)
def test_sizes_that_do_not_fit_are_named(
    tiny_bert: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_bert_into(BlockEncoder(config_for(tiny_bert, **changes)), tiny_bert)


@pytest.mark.parametrize("wrong", [{"model_type": "roberta"}, {"hidden_act": "relu"}])
def test_another_architecture_is_refused(
    tiny_bert: Path, tmp_path: Path, wrong: dict[str, str]
) -> None:
    config = read_bert_config(tiny_bert) | wrong
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=next(iter(wrong))):
        read_bert_config(tmp_path)


def test_a_folder_is_found_and_a_missing_name_is_not(
    tiny_bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_bert(str(tiny_bert)) == tiny_bert
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="nobody/nothing"):
        find_bert("nobody/nothing")


def test_a_missing_or_broken_weight_file_is_named(tiny_bert: Path, tmp_path: Path) -> None:
    encoder = BlockEncoder(config_for(tiny_bert))
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_bert_into(encoder, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors here")
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        load_bert_into(encoder, tmp_path)


def test_weights_are_kept_in_half_precision_and_computed_with_in_single(
    tiny_bert: Path, tiny_weights: Checkpoint
) -> None:
    kept = load_file(tiny_weights.directory / WEIGHTS)
    assert {tensor.dtype for tensor in kept.values()} == {torch.float16}
    loaded = load_model(tiny_weights).state_dict()
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    words = load_file(tiny_bert / "model.safetensors")["embeddings.word_embeddings.weight"]
    expected = words.half().float()
    assert not torch.equal(expected, words)
    assert torch.equal(loaded["block_encoder.token_embedding.weight"], expected)


def test_weights_that_are_written_again_are_the_same(
    tiny_weights: Checkpoint, tmp_path: Path
) -> None:
    save_weights(load_model(tiny_weights), tmp_path)
    assert (tmp_path / WEIGHTS).read_bytes() == (tiny_weights.directory / WEIGHTS).read_bytes()


@pytest.mark.parametrize("wrong", [65_520.0, -70_000.0, math.nan])
def test_a_weight_that_half_precision_has_no_number_for_is_refused(
    tmp_path: Path, wrong: float
) -> None:
    layer = nn.Linear(2, 2)
    with torch.no_grad():
        layer.bias[1] = wrong
    with pytest.raises(CheckpointError, match=f"bias: a weight of {abs(wrong):g} .* 65504"):
        save_weights(layer, tmp_path)
    assert not (tmp_path / WEIGHTS).exists()


@pytest.mark.parametrize("damage", ["changed", "cut", "empty"])
def test_damaged_weights_are_named(tiny_weights: Checkpoint, tmp_path: Path, damage: str) -> None:
    copy = Path(shutil.copytree(tiny_weights.directory, tmp_path / "copy"))
    data = bytearray((copy / WEIGHTS).read_bytes())
    data[-1] ^= 1
    damaged = {"changed": data, "cut": data[:-100], "empty": b""}
    (copy / WEIGHTS).write_bytes(damaged[damage])
    with pytest.raises(CheckpointError, match=r"copy/weights\.safetensors is not the file that"):
        load_model(load_checkpoint(copy))


def test_weights_of_another_configuration_do_not_fit(
    tiny_weights: Checkpoint, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(tiny_weights.directory, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    write_config(copy, config | {"model": config["model"] | {"attention_size": 4}})
    write_manifest(copy)
    with pytest.raises(CheckpointError, match=r"weights\.safetensors does not fit the config"):
        load_model(load_checkpoint(copy))
