"""The checkpoint of a reranker: made, exported, opened without torch, and its rule."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder.calibration import FittedMap, FittedOn, Logistic, MapError
from encoder.checkpoint import (
    CONFIG,
    DEFAULT_CHECKPOINT,
    GOLDEN,
    PAIR_GRAPH,
    RULE,
    TOKENIZER,
    WEIGHTS,
    write_manifest,
)
from encoder.errors import CheckpointError, ParityError
from encoder.golden import GOLDEN_TEXTS
from encoder.reranker import score_fusion
from encoder.reranker.checkpoint import load_reranker_checkpoint
from encoder.reranker.onnx_reranker import OnnxReranker, open_reranker
from training.errors import TrainingRecipeError
from training.export.create import RerankerRecipe, create_reranker, load_reranker_model
from training.export.export_reranker import export_reranker, score_with_model

RECIPES = Path(__file__).parents[3] / "encoder" / "recipes"
ERROR = MapError(0.5, 0.1, 0.1, 0.05)


@pytest.fixture
def changed(tiny_reranker: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(tiny_reranker, tmp_path / "copy"))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_graphs_judge_as_the_model_does(tiny_reranker: Path, precision: str) -> None:
    checkpoint = load_reranker_checkpoint(tiny_reranker)
    reranker = OnnxReranker(checkpoint, precision=precision)
    reranker.warm_up()
    texts = [reranker.read(text) for text in GOLDEN_TEXTS]
    pairs = [reranker.reader.pair(a, b) for a in texts for b in texts]
    assert len({len(pair) for pair in pairs}) > 3
    expected = score_with_model(load_reranker_model(checkpoint), pairs)
    found = np.array([reranker.score_tokens(pair) for pair in pairs])
    np.testing.assert_allclose(found, expected, atol={"fp32": 1e-3, "int8": 0.5}[precision])
    assert expected.std() > 0.1
    first = reranker.score(texts[1], texts[2])
    assert first == reranker.score_tokens(reranker.reader.pair(texts[1], texts[2]))


def test_int8_is_preferred_and_unknown_precisions_are_named(tiny_reranker: Path) -> None:
    reranker = open_reranker(tiny_reranker)
    assert reranker.checkpoint.name == "tiny-reranker"
    assert reranker.precision == "int8"
    with pytest.raises(CheckpointError, match=r"fp16.*int8, fp32"):
        open_reranker(tiny_reranker, precision="fp16")


@pytest.mark.parametrize("name", [CONFIG, TOKENIZER, GOLDEN, f"int8/{PAIR_GRAPH}"])
def test_a_changed_file_is_found_out(changed: Path, name: str) -> None:
    (changed / name).write_bytes((changed / name).read_bytes() + b" ")
    with pytest.raises(CheckpointError, match=name):
        open_reranker(changed).warm_up()


def test_a_graph_of_other_weights_is_found_out(changed: Path) -> None:
    with np.load(changed / GOLDEN) as arrays:
        content = dict(arrays)
    content["logits"] = content["logits"] + 2
    np.savez_compressed(changed / GOLDEN, **content)
    write_manifest(changed)
    with pytest.raises(ParityError, match="int8"):
        open_reranker(changed).warm_up()


def test_an_encoder_is_no_reranker(changed: Path) -> None:
    with pytest.raises(CheckpointError):
        load_reranker_checkpoint(DEFAULT_CHECKPOINT)
    (changed / "manifest.json").write_text("[]")
    with pytest.raises(CheckpointError, match="is not a JSON object"):
        load_reranker_checkpoint(changed)


def test_the_shipped_recipe_makes_a_reranker(tiny_bert: Path, tmp_path: Path) -> None:
    recipe = RerankerRecipe.read(RECIPES / "match-ignition-minilm-l4.toml")
    with pytest.raises(CheckpointError, match="layer"):  # the tiny BERT has two layers
        create_reranker(recipe, str(tiny_bert), tmp_path / "a")
    recipe.model["layers"] = 2
    with pytest.raises(CheckpointError, match="position_embedding"):  # and 64 positions
        create_reranker(recipe, str(tiny_bert), tmp_path / "b")
    recipe.pair["length"] = 64
    made = [create_reranker(recipe, str(tiny_bert), tmp_path / name) for name in ("c", "d")]
    assert made[0].fingerprint == made[1].fingerprint
    config = load_reranker_model(made[0], {"reduction": 0.5}).config
    assert (config.reduction, config.layers) == (0.5, 2)


def test_a_wrong_recipe_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    for line, message in (
        ('architecture = "smith"', "architecture"),
        ("depth = 3", "depth"),
        ("not toml", "recipe"),
    ):
        path.write_text(f'name = "a"\n{line}\n[pair]\nlength = 16\nsentences = 2\n')
        with pytest.raises(TrainingRecipeError, match=message):
            RerankerRecipe.read(path)


def test_without_weights_a_reranker_can_only_be_served(changed: Path) -> None:
    (changed / WEIGHTS).unlink()
    checkpoint = load_reranker_checkpoint(changed)
    OnnxReranker(checkpoint).warm_up()
    with pytest.raises(CheckpointError, match="only be served"):
        export_reranker(checkpoint, ["int8"])
    with pytest.raises(CheckpointError, match="fp16"):
        export_reranker(checkpoint, ["fp16"])


def test_a_fused_score_is_a_mean_of_score_and_probability() -> None:
    probability = torch.sigmoid(torch.tensor(2 * 0.7)).item()
    fused = score_fusion.FusionWeights(0.25, 2.0).score(0.4, 0.7)
    assert fused == pytest.approx(0.75 * 0.4 + 0.25 * probability)
    assert score_fusion.FusionWeights(1.0, 1.0).score(0.4, -1e6) == 0.0
    assert score_fusion.FusionWeights(0.0, 1.0).score(0.4, 3.0) == 0.4
    for weight, scale in ((-0.1, 1.0), (1.1, 1.0), (0.5, 0.0)):
        with pytest.raises(ValueError, match="weight"):
            score_fusion.FusionWeights(weight, scale)


def test_a_rule_is_kept_with_the_reranker(changed: Path) -> None:
    checkpoint = load_reranker_checkpoint(changed)
    assert score_fusion.read_score_fusion(checkpoint) == score_fusion.ScoreFusion()
    assert score_fusion.ScoreFusion().version is None
    rule = score_fusion.ScoreFusion(
        encoder="abc",
        weights={"semantic": score_fusion.FusionWeights(0.3, 0.5)},
        maps={"semantic": FittedMap(Logistic(9.0, -4.0), ERROR)},
        fitted_on=(FittedOn("small valid", 40, 20, "0" * 64),),
    )
    score_fusion.write_score_fusion(checkpoint, rule)
    opened = open_reranker(changed)
    assert opened.rule == rule
    assert opened.rule.version == rule.version
    assert opened.rule.weights_of("semantic") == score_fusion.FusionWeights(0.3, 0.5)
    assert opened.rule.weights_of("hybrid") == score_fusion.UNFITTED
    assert opened.checkpoint.fingerprint == checkpoint.fingerprint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": {"semantic": {"weight": 0.4, "scale": 0.5}}}, "was changed"),
        ({"weights": {"semantic": {"weight": 7, "scale": 0.5}}}, "not the rule"),
        (
            {"maps": {"semantic": asdict(FittedMap(Logistic(-1.0, 0.0), ERROR))}},
            "map.slope: Input should",
        ),
        ({"reranker": "other"}, "other weights"),
        ({"format": 1}, "format"),
        ({"maps": 3}, "not the rule"),
    ],
)
def test_a_rule_that_was_meddled_with_is_refused(
    changed: Path, change: dict[str, object], message: str
) -> None:
    checkpoint = load_reranker_checkpoint(changed)
    score_fusion.write_score_fusion(
        checkpoint,
        score_fusion.ScoreFusion("abc", {"semantic": score_fusion.FusionWeights(0.3, 0.5)}),
    )
    content = json.loads((changed / RULE).read_text()) | change
    (changed / RULE).write_text(json.dumps(content))
    write_manifest(changed)
    with pytest.raises(CheckpointError, match=message):
        open_reranker(changed)
