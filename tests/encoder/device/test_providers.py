"""The options of execution providers; that a GPU follows them can be tested on one alone."""

import logging
from pathlib import Path

import onnxruntime as ort
import pytest

from encoder.checkpoint import load_checkpoint
from encoder.device.packing import BlockPacking
from encoder.device.providers import (
    CPU,
    CUDA,
    TENSORRT,
    engine_folder,
    engine_shapes,
    missing_providers,
    providers_for,
    tensorrt_options,
    usable_providers,
)
from encoder.onnx_session import open_graphs

PACKING = BlockPacking(
    batch_tokens=65_536, block_length=64, start_token=101, end_token=102, padding_token=0
)
SHAPES = engine_shapes(PACKING)


def test_an_engine_has_all_shapes_of_packed_calls() -> None:
    assert (SHAPES.least, SHAPES.usual, SHAPES.most) == ((1, 16), (1024, 64), (4096, 64))
    for length in range(63):
        ids, _ = PACKING.pad([[7] * length] * PACKING.most_rows(length))
        for side, least, most in zip(ids.shape, SHAPES.least, SHAPES.most, strict=True):
            assert least <= side <= most


def test_tensorrt_is_told_shapes_precision_and_where_engines_are(tmp_path: Path) -> None:
    options = tensorrt_options(SHAPES, "fp16", tmp_path)
    assert options["trt_profile_min_shapes"] == "input_ids:1x16,attention_mask:1x16"
    assert options["trt_profile_opt_shapes"] == "input_ids:1024x64,attention_mask:1024x64"
    assert options["trt_profile_max_shapes"] == "input_ids:4096x64,attention_mask:4096x64"
    assert options["trt_fp16_enable"]
    assert options["trt_engine_cache_enable"]
    assert options["trt_engine_cache_path"] == str(tmp_path)


def test_without_a_folder_no_engine_is_kept() -> None:
    options = tensorrt_options(SHAPES, "fp32", None)
    assert not options["trt_fp16_enable"]
    assert not [name for name in options if "cache" in name]


def test_the_profile_names_the_inputs_of_the_block_graph(tiny_checkpoint: Path) -> None:
    graphs = open_graphs(load_checkpoint(tiny_checkpoint), "fp16", ["cpu"])
    names = {one.name for one in graphs.block.get_inputs()}
    profile = tensorrt_options(SHAPES, "fp16", None)["trt_profile_min_shapes"]
    assert {part.partition(":")[0] for part in profile.split(",")} == names


def test_cuda_runs_what_tensorrt_cannot() -> None:
    assert [name for name, _ in providers_for(TENSORRT, "fp16", SHAPES)] == [TENSORRT, CUDA]
    assert [name for name, _ in providers_for(TENSORRT, "fp16")] == [CUDA]  # the document level
    assert [name for name, _ in providers_for(CUDA)] == [CUDA]
    assert providers_for(CPU) == [(CPU, {})]


def test_fp32_is_exact_on_a_gpu() -> None:
    [(_, options)] = providers_for(CUDA, "fp32")
    assert options["use_tf32"] == "0"


def test_engines_of_other_graphs_have_other_folders(tmp_path: Path) -> None:
    folder = engine_folder(tmp_path, "ab" * 32)
    assert folder is not None
    assert folder.parent == tmp_path
    assert folder != engine_folder(tmp_path, "cd" * 32)
    assert ort.__version__ in folder.name
    assert engine_folder(None, "ab" * 32) is None


def test_a_provider_that_is_missing_is_named_in_the_log(
    tiny_checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert missing_providers(["tensorrt", "cpu"]) == ["tensorrt"]
    assert list(usable_providers(["tensorrt", "cpu"])) == [CPU]
    with caplog.at_level(logging.WARNING):
        graphs = open_graphs(load_checkpoint(tiny_checkpoint), None, ["tensorrt", "cpu"])
    assert graphs.provider == CPU
    assert "tensorrt is not installed" in caplog.text
