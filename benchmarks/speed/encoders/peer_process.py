"""Encoders of other projects, run by another Python: their packages do not fit ours.

They take texts and truncate them at 256 tokens, and know no chunks. So they get the texts of chunks
that were cut beforehand, and their time does not count the cutting, which favours them. The vector
of a document is the mean of its chunk vectors, as with sentence-transformers.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.speed.encoders.timed_encoder import TimedEncoder
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


class PeerProcess:
    """A worker that encodes texts; one call at a time."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.seconds = 0.0

    def ask(self, texts: Sequence[str]) -> dict[str, Any]:
        """Send texts and return the answer.

        Raises:
            RuntimeError: the process has ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process was started without pipes")
        stdin.write(json.dumps(list(texts)) + "\n")
        stdin.flush()
        if not (line := stdout.readline()):
            raise RuntimeError(f"the worker ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def encode(self, chunks: ChunkTexts) -> Float32:
        """Return document vectors Float32[D, H], unit norm; `seconds` is what it took."""
        answer = self.ask(chunks.texts)
        self.seconds = float(answer["seconds"])
        vectors = np.array(answer["vectors"], dtype=np.float32)
        sums = np.zeros((chunks.document[-1] + 1, vectors.shape[1]), dtype=np.float32)
        np.add.at(sums, chunks.document, vectors)
        means: Float32 = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return means


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
            peer = PeerProcess(process)
            tuned = peer.ask(cut_texts(cutter, texts).texts[:_WARM_UP_CHUNKS])
            yield (
                TimedEncoder(
                    name=name,
                    precision="fp32",
                    batch_size=int(tuned["batch_size"]),
                    tokenise=lambda some: cut_texts(cutter, some),
                    encode=peer.encode,
                    own_seconds=lambda: peer.seconds,
                ),
                dict(tuned["versions"]),
            )
        finally:
            process.kill()  # threads of Infinity outlive the end of its input
