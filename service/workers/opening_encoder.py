"""The encoder of a server, opened and verified in a thread while the rest of a start goes on."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder, WarmRun
from encoder.opening import find_encoder, open_encoder
from index.directory.encoder_name import remembered_encoder
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class WarmEncoder:
    """An encoder that computes here what its model does, with its first run."""

    encoder: Encoder
    run: WarmRun


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
    """Find the encoder of the settings, or of the data, and begin to open it in a thread."""
    checkpoint = find_encoder(settings.encoder or remembered_encoder(settings.data))
    thread = ThreadPoolExecutor(1, "opens the encoder")
    return OpeningEncoder(checkpoint, thread, thread.submit(_open_encoder, settings, checkpoint))


def _open_encoder(settings: Settings, checkpoint: Checkpoint) -> WarmEncoder:
    encoder = open_encoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
    )
    return WarmEncoder(encoder, encoder.warm_up())
