"""Opening the graphs of a checkpoint: which precision, execution provider and memory."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime as ort

from encoder.arrays import Float32
from encoder.checkpoint import (
    BLOCK_GRAPH,
    DOCUMENT_GRAPH,
    SECTION_GRAPH,
    WEIGHTS,
    Checkpoint,
    read_verified,
    read_weights,
)
from encoder.device.packing import BlockPacking
from encoder.device.providers import (
    CPU,
    Provider,
    load_libraries,
    messages_on_stderr,
    missing_providers,
    provider_options,
    usable_providers,
)
from encoder.errors import CheckpointError, ProviderError

GPU_BATCH_TOKENS = 65_536

_LOG = logging.getLogger(__name__)
_PREFERRED_ON_CPU = ("int8", "fp32", "fp16")
_PREFERRED_ON_GPU = ("fp16", "fp32", "int8")
# ONNX Runtime's fused residual + LayerNorm is scalar code on a CPU, slower than the two apart.
_SLOW_ON_CPU = ["SkipLayerNormFusion"]


@dataclass(frozen=True, slots=True)
class OpenedGraphs:
    """The two sessions of an encoder, with precision, provider and packing as chosen."""

    block: ort.InferenceSession
    document: ort.InferenceSession
    precision: str
    provider: str
    packing: BlockPacking


def open_graphs(
    checkpoint: Checkpoint,
    precision: str | None,
    providers: Sequence[str] | None,
    *,
    batch_tokens: int | None = None,
) -> OpenedGraphs:
    """Open both graphs with the first provider that works; arguments as of `OnnxEncoder`."""
    for name in missing_providers(providers):
        _LOG.warning("execution provider %s is not installed", name)
    for provider in usable_providers(providers):
        load_libraries(provider)
        chosen = _choose_precision(checkpoint, precision, provider)
        packing = _packing(checkpoint, provider, batch_tokens)
        given = [(provider, provider_options(provider))]
        block = _open_graph(checkpoint, f"{chosen}/{BLOCK_GRAPH}", given)
        if block.get_providers()[0] != provider:
            # ONNX Runtime falls back to the CPU without an error when a GPU library is missing
            _LOG.warning("%s is installed but does not start", provider)
            continue
        document = _open_graph(checkpoint, f"{chosen}/{DOCUMENT_GRAPH}", given)
        widths = (("block_dimension", block), ("dimension", document))
        for name, graph in widths:
            found, width = graph.get_outputs()[0].shape[-1], getattr(checkpoint, name)
            if found != width:
                where = f"{checkpoint.directory}: {name} is {width}"
                raise CheckpointError(f"{where}, and the graph gives vectors of {found}")
        return OpenedGraphs(block, document, chosen, provider, packing)
    raise ProviderError(f"none of the execution providers starts: {', '.join(providers or ())}")


def _packing(checkpoint: Checkpoint, provider: str, batch_tokens: int | None) -> BlockPacking:
    if checkpoint.segment_memory is not None:
        tokens = 0
    elif batch_tokens is None:
        tokens = 0 if provider == CPU else GPU_BATCH_TOKENS
    else:
        tokens = batch_tokens
    return BlockPacking(
        batch_tokens=tokens,
        block_length=checkpoint.block_length,
        before=(checkpoint.start_token,),
        after=(checkpoint.end_token,),
        padding_token=checkpoint.padding_token,
    )


def _choose_precision(checkpoint: Checkpoint, requested: str | None, provider: str) -> str:
    preferred = _PREFERRED_ON_CPU if provider == CPU else _PREFERRED_ON_GPU
    for precision in (requested,) if requested else preferred:
        if precision in checkpoint.precisions:
            return precision
    if f"{requested}/{BLOCK_GRAPH}" in checkpoint.files:
        read_weights(checkpoint.directory)
    raise CheckpointError(
        f"{checkpoint.directory} has no {requested or 'graphs'}; "
        f"it has: {', '.join(checkpoint.precisions) or 'none'}"
    )


class SectionGraph:
    """The graph that reads a section of a document and the next one; on the CPU.

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
    """Open the graph of sections; None of a checkpoint that has none."""
    if SECTION_GRAPH not in checkpoint.files:
        return None
    return SectionGraph(_open_graph(checkpoint, SECTION_GRAPH, [(CPU, {})]))


def _open_graph(
    checkpoint: Checkpoint, name: str, providers: Sequence[Provider]
) -> ort.InferenceSession:
    data = read_verified(checkpoint.directory, checkpoint.files, name)
    weights = read_weights(checkpoint.directory) if WEIGHTS.encode() in data else b""
    return open_session(data, checkpoint.directory / name, providers, weights)


def open_session(
    graph: bytes | Path, where: Path, providers: Sequence[Provider], weights: bytes = b""
) -> ort.InferenceSession:
    """Open a graph, by its content or its path.

    One with external data needs its path, or the content of the weights file that it reads.
    """
    options = ort.SessionOptions()
    if weights:
        options.add_external_initializers_from_files_in_memory([WEIGHTS], [weights], [len(weights)])
    options.log_severity_level = 3  # errors only: its warnings are about its optimiser
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # Shapes differ from call to call: an arena and memory patterns would grow with each new one.
    options.enable_mem_pattern = False
    options.enable_cpu_mem_arena = False
    try:
        with messages_on_stderr():
            return ort.InferenceSession(
                graph,
                options,
                providers=list(providers),
                disabled_optimizers=_SLOW_ON_CPU if providers[0][0] == CPU else None,
            )
    except Exception as error:  # the library has no common base class
        raise CheckpointError(f"{where} does not load: {error}") from error
