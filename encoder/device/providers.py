"""Execution providers: which are there, and the options of each."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from encoder.device.packing import LENGTH_STEP, BlockPacking
from encoder.errors import ProviderError

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TENSORRT = "TensorrtExecutionProvider"
DEFAULT_PROVIDERS = (CUDA, CPU)
_DEVICES = {CPU: "cpu", CUDA: "cuda", TENSORRT: "cuda"}

Provider = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class EngineShapes:
    """Shapes of the block graph that TensorRT builds one engine for.

    Attributes:
        least: the smallest [blocks, tokens].
        usual: the one that it chooses kernels for.
        most: the largest of either side.
    """

    least: tuple[int, int]
    usual: tuple[int, int]
    most: tuple[int, int]


def engine_shapes(packing: BlockPacking) -> EngineShapes:
    """Return the shapes that packed calls can have."""
    shortest = min(LENGTH_STEP, packing.block_length)
    longest = packing.block_length
    return EngineShapes(
        (1, shortest),
        (packing.most_rows(longest), longest),
        (packing.most_rows(0), longest),
    )


def usable_providers(requested: Sequence[str] | None) -> Iterator[str]:
    """Yield those of the requested execution providers that are installed, in their order.

    Raises:
        ProviderError: none of them is installed.
    """
    installed = {_short(name): name for name in ort.get_available_providers()}
    if requested is not None:
        missing = missing_providers(requested)
        if len(missing) == len(requested):
            raise ProviderError(
                f"execution provider {', '.join(missing) or '(none given)'} is not installed; "
                f"installed: {', '.join(installed)}"
            )
    for name in requested if requested is not None else DEFAULT_PROVIDERS:
        if _short(name) in installed:
            yield installed[_short(name)]


def missing_providers(requested: Sequence[str] | None) -> list[str]:
    """Return those of the requested execution providers that are not installed."""
    installed = {_short(name) for name in ort.get_available_providers()}
    return [name for name in requested or () if _short(name) not in installed]


def device_of(provider: str) -> str:
    """Return where a provider keeps inputs and outputs: "cuda", or "cpu"."""
    return _DEVICES.get(provider, "cpu")


def load_libraries(provider: str) -> None:
    """Load the libraries of CUDA as pip installs them, where no loader looks."""
    if device_of(provider) == "cuda":
        with messages_on_stderr():
            ort.preload_dlls()


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Keep ONNX Runtime from printing what it misses among the output of a command."""
    with redirect_stdout(sys.stderr):
        yield


def providers_for(
    provider: str,
    precision: str = "fp32",
    shapes: EngineShapes | None = None,
    engine_cache: Path | None = None,
) -> list[Provider]:
    """Return what a session is given: a provider, and those that run what it cannot.

    Args:
        provider: the one to use.
        precision: of the graph.
        shapes: of the inputs of a block graph, which TensorRT must know before.
        engine_cache: where TensorRT keeps the engines of this graph, which take minutes to build.
    """
    if provider == TENSORRT and shapes is not None:
        options = tensorrt_options(shapes, precision, engine_cache)
        return [(TENSORRT, options), (CUDA, dict(_CUDA_OPTIONS))]
    if provider in (CUDA, TENSORRT):
        return [(CUDA, dict(_CUDA_OPTIONS))]
    return [(provider, {})]


_CUDA_OPTIONS: Mapping[str, Any] = {
    "arena_extend_strategy": "kSameAsRequested",  # bounded by the few shapes
    "use_tf32": "0",  # fp32 is asked for where it must be exact
}
_BLOCK_INPUTS = ("input_ids", "attention_mask")


def tensorrt_options(
    shapes: EngineShapes, precision: str, engine_cache: Path | None
) -> dict[str, Any]:
    """Return the options of TensorRT for a block graph: one engine for all shapes of calls."""

    def profile(shape: tuple[int, int]) -> str:
        return ",".join(f"{name}:{shape[0]}x{shape[1]}" for name in _BLOCK_INPUTS)

    options: dict[str, Any] = {
        "trt_fp16_enable": precision == "fp16",
        "trt_profile_min_shapes": profile(shapes.least),
        "trt_profile_opt_shapes": profile(shapes.usual),
        "trt_profile_max_shapes": profile(shapes.most),
    }
    if engine_cache is not None:
        options |= {
            "trt_engine_cache_enable": True,
            "trt_engine_cache_path": str(engine_cache),
            "trt_timing_cache_enable": True,
            "trt_timing_cache_path": str(engine_cache),
        }
    return options


def engine_folder(engine_cache: Path | None, digest: str) -> Path | None:
    """Return the folder for the engines of one graph; None without a cache.

    TensorRT names an engine after the inputs and outputs of its graph, not after its weights, and
    does not find out that another version of ONNX Runtime made it.

    Args:
        engine_cache: of all graphs.
        digest: SHA-256 of the graph, in hex.
    """
    return None if engine_cache is None else engine_cache / f"{digest[:32]}-{ort.__version__}"


def _short(provider: str) -> str:
    return provider.lower().removesuffix("executionprovider")
