"""The Transformer of a sentence model: token ids to vectors of tokens, by ONNX Runtime or torch."""

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint, read_verified
from encoder.device.providers import CPU, load_libraries, provider_options, usable_providers
from encoder.errors import CheckpointError, ProviderError
from encoder.onnx_session import open_session
from encoder.sentence_model.folder import SentenceModel

_OUTPUTS = ("last_hidden_state", "token_embeddings")


class Transformer(Protocol):
    """Computes the vectors of tokens; from any thread.

    Attributes:
        precision: of the numbers that it computes with.
        provider: what computes.
        on_cpu: whether that is the CPU.
    """

    precision: str
    provider: str
    on_cpu: bool

    def run(self, ids: Int64, mask: Int64) -> Float32:
        """Return the vectors [B, T, width] of tokens, of their ids and mask [B, T]."""
        ...


class OnnxTransformer:
    """A `Transformer` by ONNX Runtime, with the first provider that starts."""

    def __init__(
        self, checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
    ) -> None:
        graph = checkpoint.model["sentence_model"].graphs[precision]
        path = checkpoint.directory / graph
        for provider in usable_providers(providers):
            load_libraries(provider)
            session = open_session(path, path, [(provider, provider_options(provider))])
            if session.get_providers()[0] == provider:
                break
        else:
            raise ProviderError(f"no execution provider starts: {', '.join(providers or ())}")
        self._session = session
        self._inputs = [node.name for node in session.get_inputs()]
        outputs = [node.name for node in session.get_outputs()]
        self._output = next((name for name in _OUTPUTS if name in outputs), outputs[0])
        unknown = set(self._inputs) - {"input_ids", *_MADE}
        if unknown:
            raise CheckpointError(f"{path}: needs inputs that are unknown: {sorted(unknown)}")
        self.precision = precision
        self.provider = provider
        self.on_cpu = provider == CPU

    def run(self, ids: Int64, mask: Int64) -> Float32:
        """Return the vectors [B, T, width] of tokens."""
        inputs = {name: ids if name == "input_ids" else _MADE[name](mask) for name in self._inputs}
        vectors: Float32 = self._session.run([self._output], inputs)[0]
        return vectors.astype(np.float32, copy=False)


_MADE = {
    "attention_mask": lambda mask: mask,
    "token_type_ids": np.zeros_like,
    "position_ids": lambda mask: np.maximum(mask.cumsum(axis=1) - 1, 0),
}


class TorchTransformer:
    """A `Transformer` by torch, of the weights that the folder has."""

    on_cpu: bool

    def __init__(
        self, checkpoint: Checkpoint, precision: str, providers: Sequence[str] | None
    ) -> None:
        self._torch: Any = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
        self.provider = _choose_device(self._torch, providers)
        self.precision = precision
        self.on_cpu = self.provider == "cpu"
        if self.on_cpu:
            self._torch.set_num_threads(1)  # of a call: several threads call
        transformers.utils.logging.disable_progress_bar()
        try:
            model = transformers.AutoModel.from_pretrained(
                checkpoint.directory,
                dtype=self._torch.float16 if precision == "fp16" else self._torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            )
        except Exception as error:  # of either library, for each way that a file can be wrong
            reason = str(error).strip().partition("\n")[0]
            raise CheckpointError(f"{checkpoint.directory}: does not load: {reason}") from error
        self._model = model.eval().to(self.provider)

    def run(self, ids: Int64, mask: Int64) -> Float32:
        """Return the vectors [B, T, width] of tokens."""
        with self._torch.inference_mode():
            found = self._model(
                input_ids=self._torch.from_numpy(ids).to(self.provider),
                attention_mask=self._torch.from_numpy(mask).to(self.provider),
            )
            vectors: Float32 = found.last_hidden_state.float().cpu().numpy()
        return vectors


def open_transformer(
    checkpoint: Checkpoint, precision: str | None, providers: Sequence[str] | None
) -> Transformer:
    """Open the Transformer of a sentence model, in fp32 where it has that and none is chosen.

    Raises:
        CheckpointError: it does not load, is not what was described, or has no such precision.
        ProviderError: none of the providers is there.
    """
    chosen = precision or ("fp32" if "fp32" in checkpoint.precisions else checkpoint.precisions[0])
    if chosen not in checkpoint.precisions:
        having = ", ".join(checkpoint.precisions)
        raise CheckpointError(f"{checkpoint.directory} has no {chosen}; it has: {having}")
    for name in checkpoint.files:
        read_verified(checkpoint.directory, checkpoint.files, name)
    model: SentenceModel = checkpoint.model["sentence_model"]
    kind = OnnxTransformer if model.graphs else TorchTransformer
    transformer = kind(checkpoint, chosen, providers)
    found = transformer.run(np.full((1, 2), checkpoint.end_token), np.ones((1, 2), np.int64)).shape
    if found != (1, 2, model.width):
        raise CheckpointError(
            f"{checkpoint.directory}: gives tensors of shape {found}, not (1, 2, {model.width}): "
            "not the vectors of tokens"
        )
    return transformer


def _choose_device(torch: Any, providers: Sequence[str] | None) -> str:
    for name in providers or ("cuda", "cpu"):
        device = name.lower().removesuffix("executionprovider")
        if device == "cpu" or (device == "cuda" and torch.cuda.is_available()):
            return device
    raise ProviderError(f"torch has none of these devices here: {', '.join(providers or ())}")
