"""The encoder of a server, opened and verified in a thread while the rest of a start goes on."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder, WarmRun
from encoder.opening import find_encoder, open_encoder
from index.directory.encoder_name import remembered_encoder
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class OpeningEncoder:
    """An encoder that is being opened, with its first run: it computes what its model does."""

    checkpoint: Checkpoint
    opened: Future[tuple[Encoder, WarmRun]]


def begin_opening(settings: Settings) -> OpeningEncoder:
    """Find the encoder of the settings, or of the data, and begin to open it in a thread."""
    checkpoint = find_encoder(settings.encoder or remembered_encoder(settings.data))
    thread = ThreadPoolExecutor(1, "opens the encoder")
    opened = thread.submit(_open_encoder, settings, checkpoint)
    thread.shutdown(wait=False)
    return OpeningEncoder(checkpoint, opened)


def _open_encoder(settings: Settings, checkpoint: Checkpoint) -> tuple[Encoder, WarmRun]:
    encoder = open_encoder(
        checkpoint,
        precision=settings.precision,
        providers=settings.providers or None,
        threads=settings.threads,
    )
    return encoder, encoder.warm_up()
