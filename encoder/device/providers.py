"""Execution providers: which are there, and the options of each."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any

import onnxruntime as ort

from encoder.errors import ProviderError

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
DEFAULT_PROVIDERS = (CUDA, CPU)
DEVICES = {CPU: "cpu", CUDA: "cuda"}  # where inputs and outputs are kept

Provider = tuple[str, dict[str, Any]]


def usable_providers(requested: Sequence[str] | None) -> Iterator[str]:
    """Yield those of the requested execution providers that are installed, in their order.

    Raises:
        ProviderError: none of them is installed.
    """
    installed = _installed()
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
    installed = _installed()
    return [name for name in requested or () if _short(name) not in installed]


def load_libraries(provider: str) -> None:
    """Load the libraries of CUDA as pip installs them, where no loader looks."""
    if provider == CUDA:
        with messages_on_stderr():
            ort.preload_dlls()


@contextmanager
def messages_on_stderr() -> Iterator[None]:
    """Keep ONNX Runtime from printing what it misses among the output of a command."""
    with redirect_stdout(sys.stderr):
        yield


def provider_options(provider: str) -> dict[str, Any]:
    """Return the options of a provider."""
    if provider == CPU:
        return {}
    return {
        "arena_extend_strategy": "kSameAsRequested",  # bounded by the few shapes
        "use_tf32": "0",  # fp32 is requested where it must be exact
    }


def _installed() -> dict[str, str]:
    """Return the installed providers by their short names; others than these are never used."""
    return {_short(name): name for name in ort.get_available_providers() if name in DEVICES}


def _short(provider: str) -> str:
    return provider.lower().removesuffix("executionprovider")
