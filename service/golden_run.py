"""What an encoder computes on this machine, and how fast: read off its golden batch."""

import time
from dataclasses import dataclass
from hashlib import blake2b

from encoder.golden import read_golden_batch
from encoder.onnx_encoder import OnnxEncoder

SPACE_BYTES = 20


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """One run of the golden batch.

    Attributes:
        space: a digest that two encoders share only when they compute the same bits. It is over the
            fingerprint of the checkpoint, the precision and the block vectors as this machine
            computes them: int8 kernels differ between processors.
        tokens_per_second: of one thread.
    """

    space: bytes
    tokens_per_second: float


def golden_run(encoder: OnnxEncoder) -> GoldenRun:
    """Encode the golden batch of the checkpoint."""
    blocks = read_golden_batch(encoder.checkpoint).blocks
    started = time.perf_counter()
    vectors = encoder.encode_blocks(blocks)
    seconds = time.perf_counter() - started
    digest = blake2b(encoder.checkpoint.fingerprint.encode(), digest_size=SPACE_BYTES)
    digest.update(encoder.precision.encode())
    digest.update(vectors.tobytes())
    return GoldenRun(digest.digest(), sum(len(block) for block in blocks) / seconds)
