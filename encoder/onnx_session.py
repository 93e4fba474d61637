"""Opening the graphs of a checkpoint: which precision, execution provider and memory."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from encoder.arrays import Float32
from encoder.checkpoint import (
    BLOCK_GRAPH,
    DOCUMENT_GRAPH,
    SECTION_GRAPH,
    Checkpoint,
    read_verified,
)
from encoder.errors import CheckpointError, ProviderError

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
DEFAULT_PROVIDERS = (CUDA, CPU)

_LOG = logging.getLogger(__name__)
_PREFERRED_ON_CPU = ("int8", "fp32", "fp16")
_PREFERRED_ON_GPU = ("fp16", "fp32", "int8")
# ONNX Runtime's fused residual + LayerNorm is scalar code on a CPU, slower than the two apart.
_SLOW_ON_CPU = ["SkipLayerNormFusion"]


@dataclass(frozen=True, slots=True)
class OpenedGraphs:
    """The two sessions of an encoder, with the chosen precision and provider."""

    block: ort.InferenceSession
    document: ort.InferenceSession
    precision: str
    provider: str

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.provider == CPU


def open_graphs(
    checkpoint: Checkpoint, precision: str | None, providers: Sequence[str] | None
) -> OpenedGraphs:
    """Open both graphs with the first provider that works.

    Raises:
        CheckpointError: a graph is missing or changed, or not of the requested precision.
        ProviderError: none of the requested providers can be used.
    """
    for provider in usable_providers(providers):
        if provider == CUDA:
            ort.preload_dlls()  # CUDA as pip installs it lies where no loader looks
        chosen = _choose_precision(checkpoint, precision, provider)
        block = _open_graph(checkpoint, f"{chosen}/{BLOCK_GRAPH}", provider)
        if block.get_providers()[0] != provider:
            # ONNX Runtime falls back to the CPU without an error when a GPU library is missing
            _LOG.warning("%s is installed but does not start", provider)
            continue
        document = _open_graph(checkpoint, f"{chosen}/{DOCUMENT_GRAPH}", provider)
        return OpenedGraphs(block, document, chosen, provider)
    raise ProviderError(f"none of the execution providers starts: {', '.join(providers or ())}")


def usable_providers(requested: Sequence[str] | None) -> Iterator[str]:
    """Yield those of the requested execution providers that are installed, in their order.

    Raises:
        ProviderError: none of them is installed.
    """
    installed = {_short(name): name for name in ort.get_available_providers()}
    if requested is not None:
        missing = [name for name in requested if _short(name) not in installed]
        if len(missing) == len(requested):
            raise ProviderError(
                f"execution provider {', '.join(missing) or '(none given)'} is not installed; "
                f"installed: {', '.join(installed)}"
            )
    for name in requested if requested is not None else DEFAULT_PROVIDERS:
        if _short(name) in installed:
            yield installed[_short(name)]


def _short(provider: str) -> str:
    return provider.lower().removesuffix("executionprovider")


def _choose_precision(checkpoint: Checkpoint, requested: str | None, provider: str) -> str:
    preferred = _PREFERRED_ON_CPU if provider == CPU else _PREFERRED_ON_GPU
    for precision in (requested,) if requested else preferred:
        if precision in checkpoint.precisions:
            return precision
    raise CheckpointError(
        f"{checkpoint.directory} has no {requested or 'graphs'}; "
        f"it has: {', '.join(checkpoint.precisions) or 'none'}"
    )


def open_pair_graph(directory: Path, files: Mapping[str, str], name: str) -> ort.InferenceSession:
    """Open the graph of a reranker, for the CPU.

    Raises:
        CheckpointError: it is missing, changed or does not load.
    """
    return _open_session(read_verified(directory, files, name), directory / name, CPU)


class SectionGraph:
    """The graph that reads one section of a document beside the next one; on the CPU.

    Attributes:
        outputs: the names of what it can compute.
    """

    def __init__(self, session: ort.InferenceSession) -> None:
        self._session = session
        self._options = ort.RunOptions()
        # What only the other output needs is not computed.
        self._options.add_run_config_entry("only_execute_path_to_fetches", "1")
        self.outputs = frozenset(output.name for output in session.get_outputs())

    def run(self, output: str, inputs: Mapping[str, Any]) -> Float32:
        """Compute one output."""
        found: Float32 = self._session.run([output], dict(inputs), self._options)[0]
        return found


def open_section_graph(checkpoint: Checkpoint) -> SectionGraph | None:
    """Open the graph of sections; None of a checkpoint that has none.

    Raises:
        CheckpointError: it is missing, changed or does not load.
    """
    if SECTION_GRAPH not in checkpoint.files:
        return None
    return SectionGraph(_open_graph(checkpoint, SECTION_GRAPH, CPU))


def _open_graph(checkpoint: Checkpoint, name: str, provider: str) -> ort.InferenceSession:
    data = read_verified(checkpoint.directory, checkpoint.files, name)
    return _open_session(data, checkpoint.directory / name, provider)


def _open_session(data: bytes, where: Path, provider: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3  # errors only: its warnings are about its own optimiser
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Shapes differ from call to call: an arena and memory patterns would grow with each new one.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    try:
        return ort.InferenceSession(
            data,
            options,
            providers=[(provider, _provider_options(provider))],
            disabled_optimizers=_SLOW_ON_CPU if provider == CPU else None,
        )
    except Exception as error:  # the library has no common base class of its own
        raise CheckpointError(f"{where} does not load: {error}") from error


def _provider_options(provider: str) -> dict[str, Any]:
    if provider == CUDA:
        return {"arena_extend_strategy": "kSameAsRequested"}  # bounded by the fixed shapes
    return {}
