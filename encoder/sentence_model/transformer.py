"""The Transformer of a sentence model: token ids to vectors of tokens, by ONNX Runtime or torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.device.providers import CPU, load_libraries, provider_options, usable_providers
from encoder.errors import CheckpointError, ProviderError
from encoder.onnx_session import open_session
from encoder.sentence_model.folder import SentenceModel, read_table

_OUTPUTS = ("last_hidden_state", "token_embeddings")
# The inputs that are made of the mask [B, T].
_OF_MASK: dict[str, Callable[[Int64], Int64]] = {
    "attention_mask": lambda mask: mask,
    "token_type_ids": lambda mask: np.zeros_like(mask),
    "position_ids": lambda mask: np.maximum(mask.cumsum(axis=1) - 1, 0),
}


@dataclass(frozen=True, slots=True)
class Transformer:
    """Computes the vectors of tokens; from any thread.

    Attributes:
        run: their ids and mask, both [B, T] -> their vectors [B, T, width].
        provider: what computes.
        on_cpu: whether that is the CPU.
    """

    run: Callable[[Int64, Int64], Float32]
    provider: str
    on_cpu: bool


def open_transformer(
    checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
) -> Transformer:
    """Open the Transformer of a sentence model.

    Raises:
        CheckpointError: it does not load, is not what was described, or has no such precision.
        ProviderError: none of the providers is there.
    """
    if precision not in checkpoint.precisions:
        having = ", ".join(checkpoint.precisions)
        raise CheckpointError(f"{checkpoint.directory} has no {precision}; it has: {having}")
    model: SentenceModel = checkpoint.model["sentence_model"]
    opened = _by_table if model.static else _by_onnx if model.graphs else _by_torch
    transformer = opened(checkpoint, precision, providers)
    tokens = np.full((1, 2), checkpoint.end_token, dtype=np.int64)
    shape = transformer.run(tokens, np.ones_like(tokens)).shape
    if shape != (1, 2, model.width):
        raise CheckpointError(
            f"{checkpoint.directory}: gives {shape}, not vectors (1, 2, {model.width}) of tokens"
        )
    return transformer


def _by_onnx(
    checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
) -> Transformer:
    """Open a graph in ONNX Runtime, with the first provider that starts."""
    model: SentenceModel = checkpoint.model["sentence_model"]
    path = checkpoint.directory / model.graphs[precision]
    for provider in usable_providers(providers):
        load_libraries(provider)
        session = open_session(path, path, [(provider, provider_options(provider))])
        if session.get_providers()[0] == provider:
            break
    else:
        raise ProviderError(f"no execution provider starts: {', '.join(providers or ())}")
    inputs = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]
    output = next((name for name in _OUTPUTS if name in outputs), outputs[0])
    unknown = set(inputs) - {"input_ids", *_OF_MASK}
    if unknown:
        raise CheckpointError(f"{path}: unknown inputs: {', '.join(sorted(unknown))}")

    def run(ids: Int64, mask: Int64) -> Float32:
        made = {name: _OF_MASK[name](mask) for name in inputs if name in _OF_MASK}
        vectors: Float32 = session.run([output], {"input_ids": ids, **made})[0]
        return vectors.astype(np.float32, copy=False)

    return Transformer(run, provider, provider == CPU)


def _by_torch(
    checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
) -> Transformer:
    """Open the weights in torch."""
    import torch
    import transformers

    usable = ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",)
    names = [name.lower().removesuffix("executionprovider") for name in providers or usable]
    if not set(names) & set(usable):
        raise ProviderError(f"torch has here {', '.join(usable)}, not {', '.join(names)}")
    provider = next(name for name in names if name in usable)
    if provider == "cpu":
        torch.set_num_threads(1)  # of a call: several threads call
    transformers.utils.logging.disable_progress_bar()
    try:
        loaded = transformers.AutoModel.from_pretrained(
            checkpoint.directory,
            dtype=torch.float16 if precision == "fp16" else torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except Exception as error:  # of either library, for each way that a file can be wrong
        reason = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"{checkpoint.directory}: does not load: {reason}") from error
    model = loaded.eval().to(provider)

    def run(ids: Int64, mask: Int64) -> Float32:
        with torch.inference_mode():
            found = model(
                input_ids=torch.from_numpy(ids).to(provider),
                attention_mask=torch.from_numpy(mask).to(provider),
            )
            vectors: Float32 = found.last_hidden_state.float().cpu().numpy()
        return vectors

    return Transformer(run, provider, provider == "cpu")


def _by_table(
    checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
) -> Transformer:
    """Open a static model, which looks each token up."""
    if CPU not in (providers or (CPU,)):
        raise ProviderError(f"a static model is read by {CPU}, not {', '.join(providers or ())}")
    table = read_table(checkpoint.directory)
    return Transformer(lambda ids, _: table[ids], CPU, on_cpu=True)
