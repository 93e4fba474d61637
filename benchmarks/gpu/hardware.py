"""Which GPU there is, and what it can do at most."""

import subprocess
from collections.abc import Mapping

# Dense fp16 products with fp32 sums, in TFLOP/s, from NVIDIA's data sheets; the first name that is
# part of the name of a GPU counts.
PEAK_TFLOPS: Mapping[str, float] = {
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100": 989.4,
    "A100": 312.0,
    "L40S": 362.05,
    "L4": 121.0,
    "A10G": 70.0,
    "T4": 65.0,
}
_QUERY = "name,driver_version,memory.total"


def describe_gpu() -> dict[str, str]:
    """Return name, driver and memory of the first GPU; empty where there is none."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={_QUERY}", "--format=csv,noheader"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return {}
    return parse_gpu(found)


def parse_gpu(line: str) -> dict[str, str]:
    """Parse the line of nvidia-smi: name, driver, memory."""
    values = [value.strip() for value in line.strip().split(",")]
    return dict(zip(("name", "driver", "memory"), values, strict=True))


def peak_flops(name: str) -> float | None:
    """Return the operations a second that a GPU can do in fp16; None for an unknown one."""
    found = (peak for part, peak in PEAK_TFLOPS.items() if part in name)
    peak = next(found, None)
    return None if peak is None else peak * 1e12
