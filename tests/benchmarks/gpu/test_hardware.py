"""What nvidia-smi says of a GPU, and the peaks of known ones."""

import pytest

from benchmarks.gpu.hardware import describe_gpu, parse_gpu, peak_flops


def test_the_line_of_nvidia_smi() -> None:
    line = "NVIDIA H100 80GB HBM3, 580.159.03, 81559 MiB\n"
    assert parse_gpu(line) == {
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "580.159.03",
        "memory": "81559 MiB",
    }


def test_without_a_gpu_there_is_nothing_to_describe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert describe_gpu() == {}


def test_peaks_by_name() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989.4e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA L4") == 121e12
    assert peak_flops("NVIDIA L40S") == 362.05e12
    assert peak_flops("") is None
