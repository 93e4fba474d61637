"""Execution providers; that a GPU follows its options can be tested on one alone."""

import logging
from pathlib import Path

import pytest

from encoder.checkpoint import load_checkpoint
from encoder.device.providers import (
    CPU,
    CUDA,
    missing_providers,
    provider_options,
    usable_providers,
)
from encoder.errors import ProviderError
from encoder.onnx_session import open_graphs


def test_fp32_is_exact_on_a_gpu() -> None:
    assert provider_options(CUDA)["use_tf32"] == "0"
    assert provider_options(CPU) == {}


def test_a_missing_provider_is_named_in_the_log(
    tiny_checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert missing_providers(["cuda", "cpu"]) == ["cuda"]
    assert list(usable_providers(["cuda", "cpu"])) == [CPU]
    with caplog.at_level(logging.WARNING):
        graphs = open_graphs(load_checkpoint(tiny_checkpoint), None, ["cuda", "cpu"])
    assert graphs.provider == CPU
    assert "cuda is not installed" in caplog.text


def test_known_providers_are_used_in_the_requested_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime for CUDA lists TensorRT, which needs options that nobody has tried."""
    monkeypatch.setattr(
        "onnxruntime.get_available_providers", lambda: ["TensorrtExecutionProvider", CPU, CUDA]
    )
    assert list(usable_providers(None)) == [CUDA, CPU]
    assert list(usable_providers(["cpu", "cuda"])) == [CPU, CUDA]
    assert list(usable_providers(["cuda", "cpu"])) == [CUDA, CPU]
    assert list(usable_providers(["CPU"])) == list(usable_providers([CPU])) == [CPU]
    with pytest.raises(ProviderError, match="none given"):
        list(usable_providers([]))
    with pytest.raises(ProviderError, match="tensorrt is not installed; installed: cpu, cuda"):
        list(usable_providers(["tensorrt"]))
