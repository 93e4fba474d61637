"""Encoders of other projects, run by another Python: their packages do not fit ours.

They take texts and truncate them at 256 tokens, and know no chunks. So they get the texts of chunks
that were cut beforehand, and their time does not count the cutting, which favours them. The vector
of a document is the mean of its chunk vectors, as with sentence-transformers.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from benchmarks.common import ask_worker
from benchmarks.speed.encoders.timed_encoder import TimedEncoder, mean_vectors
from encoder.arrays import Float32, Int64

CHUNK_TOKENS = 254  # and two special ones
_WORKER = Path(__file__).with_name("peer_worker.py")
_WARM_UP_CHUNKS = 32


@dataclass(frozen=True, slots=True)
class ChunkTexts:
    """The texts of the chunks of D documents.

    Attributes:
        texts: of all documents, one after another.
        document: Int64[chunks], which document each belongs to.
    """

    texts: list[str]
    document: Int64


def cut_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> ChunkTexts:
    """Cut texts into pieces of `CHUNK_TOKENS` tokens of a tokenizer that does not truncate."""
    pieces: list[str] = []
    owners: list[int] = []
    for number, text in enumerate(texts):
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets
        for start in range(0, len(offsets), CHUNK_TOKENS):
            some = offsets[start : start + CHUNK_TOKENS]
            pieces.append(text[some[0][0] : some[-1][1]])
            owners.append(number)
    return ChunkTexts(pieces, np.array(owners, dtype=np.int64))


@contextmanager
def open_peer(
    name: str, python: Path, model: Path, threads: int, texts: Sequence[str]
) -> Iterator[tuple[TimedEncoder, dict[str, str]]]:
    """Start a worker and find its best batch size.

    Args:
        name: fastembed or infinity.
        python: the interpreter of an environment that has it.
        model: folder of the model with tokenizer.json; for fastembed also `onnx/model.onnx`.
        threads: for the model.
        texts: to find the batch size with.

    Yields:
        The encoder, and the versions of its packages.
    """
    cutter = Tokenizer.from_file(str(model / "tokenizer.json"))
    cutter.no_truncation()
    cutter.no_padding()
    command = [str(python), str(_WORKER), name, str(model), str(threads)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            tuned = ask_worker(process, cut_texts(cutter, texts).texts[:_WARM_UP_CHUNKS])
            seconds = [0.0]  # of the last call

            def encode(chunks: ChunkTexts) -> Float32:
                answer = ask_worker(process, chunks.texts)
                seconds[0] = float(answer["seconds"])
                return mean_vectors(np.array(answer["vectors"], dtype=np.float32), chunks.document)

            yield (
                TimedEncoder(
                    name=name,
                    precision="fp32",
                    batch_size=int(tuned["batch_size"]),
                    tokenise=lambda some: cut_texts(cutter, some),
                    encode=encode,
                    own_seconds=lambda: seconds[0],
                ),
                dict(tuned["versions"]),
            )
        finally:
            process.kill()  # threads of Infinity outlive the end of its input
