"""The encoder of a server, opened and verified in a thread while the rest of a start goes on."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from encoder.block_selection import open_document_tokenizer
from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, find_checkpoint, load_checkpoint
from encoder.onnx_encoder import GoldenRun, OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class WarmEncoder:
    """An encoder that computes here what its model does, with its run of the golden batch."""

    encoder: OnnxEncoder
    golden: GoldenRun
    tokenizer: BlockTokenizer


@dataclass(frozen=True, slots=True)
class OpeningEncoder:
    """An encoder that is being opened."""

    checkpoint: Checkpoint
    thread: ThreadPoolExecutor
    opened: Future[WarmEncoder]

    def finish(self) -> WarmEncoder:
        """Wait for the encoder, and for the end of the thread."""
        with self.thread:
            return self.opened.result()


def begin_opening(settings: Settings) -> OpeningEncoder:
    """Read the checkpoint of the settings, and begin to open its encoder in a thread."""
    checkpoint = load_checkpoint(find_checkpoint(settings.checkpoint or DEFAULT_CHECKPOINT))
    thread = ThreadPoolExecutor(1, "opens the encoder")
    return OpeningEncoder(checkpoint, thread, thread.submit(_open_encoder, settings, checkpoint))


def _open_encoder(settings: Settings, checkpoint: Checkpoint) -> WarmEncoder:
    encoder = OnnxEncoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
    )
    return WarmEncoder(encoder, encoder.warm_up(), open_document_tokenizer(checkpoint))
