"""A sentence model on a server: `/embed` of Text Embeddings Inference, or `/v1/embeddings`.

The server has the tokenizer, so a block is counted in characters here, and a token is a character.
A block that the server finds too long is divided, and its vector is the mean of those of its parts,
so that nothing is cut. A key is taken from `LONGMATCH_ENCODER_KEY`.
"""

import hashlib
import json
import os
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpcore2
import numpy as np

from encoder.arrays import Float32, unit
from encoder.checkpoint import SENTENCE_MODEL, Checkpoint
from encoder.errors import CheckpointError, EncoderServerError
from encoder.sentence_model.encoder import BlockMeanEncoder
from encoder.sentence_model.name import SentenceModelName, choose

KEY = "LONGMATCH_ENCODER_KEY"
SHORTEST_BLOCK, DEFAULT_BLOCK, LONGEST_BLOCK = 64, 1_000, 32_000  # characters
_READ_CHARACTERS = 262_144  # of a document: about 65,536 tokens, as many as the others read
_SHORTEST_PART = 64  # characters of a block that is divided because the server finds it too long
_TEXTS_A_CALL = 32  # as many as Text Embeddings Inference takes by default
_CALLS = 4  # at a time
_ANSWER_BYTES = 64 * 2**20
_CONNECT_SECONDS = 5.0
# For how long a call is repeated: a request has a client that waits, an offline job has not. How
# long one may take follows from it: a server that is slow is not sent the same texts once more.
_OPENING_SECONDS, _REQUEST_SECONDS, _JOB_SECONDS = 5.0, 10.0, 600.0
_CALL_SECONDS, _JOB_CALL_SECONDS = 30.0, 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 30.0
_BROKEN_ANSWERS = 3  # of a call, until it fails: the next one would be as broken
_OK = 200
_TOO_LONG = (400, 413, 422)  # what servers say to a text, or a batch, that they do not take
_PASSING = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class EmbeddingServer:
    """A server of embeddings.

    Attributes:
        url: what texts are sent to.
        model: its name, as the server says it.
        texts_a_call: most texts of a call.
        tei: whether it speaks as Text Embeddings Inference does, otherwise as OpenAI.
    """

    url: str
    model: str
    texts_a_call: int
    tei: bool

    def request(self, texts: Sequence[str]) -> bytes:
        """Return the body of a call for these texts."""
        body: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self.tei:
            body = {"inputs": texts, "normalize": True, "truncate": False}
        return json.dumps(body).encode()

    def parse(self, answer: Any, number: int) -> Float32:
        """Return the vectors [number, D] of an answer.

        Raises:
            ValueError, KeyError, TypeError, IndexError: it is none.
        """
        rows = answer
        if not self.tei:
            rows = [row["embedding"] for row in sorted(answer["data"], key=lambda r: r["index"])]
        vectors = np.array(rows, dtype=np.float32)
        if vectors.ndim != 2 or len(vectors) != number:
            raise ValueError(f"{len(rows)} vectors for {number} texts")
        if not np.isfinite(vectors).all() or not np.linalg.norm(vectors, axis=1).all():
            raise ValueError("a vector that is not finite, or zero")
        return vectors


class _RefusedError(Exception):
    """The server answered with a status that says that the request is wrong."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"status {status}: {detail}")
        self.status = status


@dataclass(frozen=True, slots=True)
class _Patience:
    """For how long calls are repeated.

    Attributes:
        seconds: of each call.
        ended: set when nobody waits for them any more.
    """

    seconds: float
    ended: Event = field(default_factory=Event)


class _Http:
    """Calls of a server, repeated while what failed may pass."""

    def __init__(self) -> None:
        self._pool = httpcore2.ConnectionPool(max_connections=_CALLS)
        weakref.finalize(self, self._pool.close)
        key = os.environ.get(KEY)
        self._headers: dict[bytes | str, bytes | str]
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        self._headers |= {"Authorization": f"Bearer {key}"} if key else {}
        self._failing = False

    def call(
        self, url: str, body: bytes | None, patience: _Patience, read: Callable[[Any], Any]
    ) -> Any:
        """Send a body, or ask without, and return what `read` makes of the answer.

        Raises:
            EncoderServerError: it failed, again and again.
            _RefusedError: the server refuses this request.
        """
        # While it fails, each request tries once: nobody waits for what has just failed.
        waits = not self._failing or patience.seconds >= _JOB_SECONDS
        until = time.monotonic() + (patience.seconds if waits else 0.0)
        pause, broken = _FIRST_PAUSE, 0
        while True:
            wait = random.uniform(pause / 2, pause)  # noqa: S311 - not for secrecy
            try:
                status, headers, data = self._send(url, body, patience)
                if status == _OK:
                    answer = read(json.loads(data))
                    self._failing = False
                    return answer
                reason = f"status {status}: {data[:200].decode(errors='replace')}"
                if status not in _PASSING:
                    raise _RefusedError(status, data[:200].decode(errors="replace"))
                wait = max(wait, _seconds(headers.get(b"retry-after")))
            except (httpcore2.TimeoutException, httpcore2.NetworkError) as error:
                reason = f"{type(error).__name__} {error}"
            except (httpcore2.ProtocolError, ValueError, KeyError, TypeError, IndexError) as error:
                reason, broken = f"not an answer: {error}", broken + 1
            if broken == _BROKEN_ANSWERS or time.monotonic() + wait > until:
                self._failing = True
                raise EncoderServerError(f"{url}: {reason}")
            if patience.ended.wait(wait):
                raise EncoderServerError(f"{url}: {reason}")
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _send(
        self, url: str, body: bytes | None, patience: _Patience
    ) -> tuple[int, Mapping[bytes, bytes], bytes]:
        most = _JOB_CALL_SECONDS if patience.seconds >= _JOB_SECONDS else _CALL_SECONDS
        times = {"connect": _CONNECT_SECONDS, "pool": most, "read": most, "write": most}
        method = "GET" if body is None else "POST"
        with self._pool.stream(
            method, url, headers=self._headers, content=body, extensions={"timeout": times}
        ) as response:
            data = bytearray()
            for part in response.iter_stream():
                data += part
                if len(data) > _ANSWER_BYTES:
                    raise ValueError(f"over {_ANSWER_BYTES} bytes")
            return response.status, {k.lower(): v for k, v in response.headers}, bytes(data)


def _seconds(header: bytes | None) -> float:
    return min(float(header), _LONGEST_PAUSE) if header and header.isdigit() else 0.0


def describe_server(name: SentenceModelName) -> Checkpoint:
    """Describe the model of a server, which is called once.

    Raises:
        CheckpointError: there is no server, no such model, or an option does not fit it.
    """
    http = _Http()
    try:
        server, revision = _find_model(http, name)
        probe = _embed(http, server, ["harbour"], None, _Patience(_OPENING_SECONDS))
    except EncoderServerError as error:
        raise CheckpointError(f"no server of embeddings answers: {error}") from error
    except _RefusedError as error:
        raise CheckpointError(f"{name.location}: refuses to make embeddings: {error}") from error
    width = probe.shape[1]
    block = choose("block", name.block, DEFAULT_BLOCK, SHORTEST_BLOCK, LONGEST_BLOCK)
    dimension = choose("dimension", name.dimension, width, 1, width)
    prompt = name.prompt or ""
    decisive = [server.model, revision, width, dimension, prompt, block, name.language]
    return Checkpoint(
        directory=Path(name.location),
        name=server.model,
        architecture=SENTENCE_MODEL,
        fingerprint=hashlib.sha256(json.dumps(decisive).encode()).hexdigest(),
        block_length=block,
        max_blocks=_READ_CHARACTERS // block,
        long_sentence="split",
        language=name.language,
        start_token=0,
        end_token=0,
        padding_token=0,
        block_dimension=dimension,
        dimension=dimension,
        model={
            "server": server,
            "prompt": prompt,
            "width": width,
            "reserved_tokens": 0,
            "space": "",
            "vocabulary_size": 0x110000,
        },
        precisions=("server",),
        files={},
        source=name.source,
    )


def _find_model(http: _Http, name: SentenceModelName) -> tuple[EmbeddingServer, str]:
    """Return what to call, and the revision of the model where the server says it."""
    base = name.location.rstrip("/")
    if not base.endswith("/v1"):
        info = _ask(http, f"{base}/info")
        if isinstance(info, dict) and "model_id" in info:
            kinds = info.get("model_type")
            if isinstance(kinds, dict) and "embedding" not in kinds:
                raise CheckpointError(f"{base}: {info['model_id']}: a reranker or a classifier")
            model = str(info["model_id"])
            if name.model not in (None, model):
                raise CheckpointError(f"{base}: has the model {model}, not {name.model}")
            most = min(_TEXTS_A_CALL, int(info.get("max_client_batch_size") or _TEXTS_A_CALL))
            server = EmbeddingServer(f"{base}/embed", model, most, tei=True)
            return server, str(info.get("model_sha"))
        base = f"{base}/v1"
    model = name.model or _only_model(http, base)
    return EmbeddingServer(f"{base}/embeddings", model, _TEXTS_A_CALL, tei=False), ""


def _only_model(http: _Http, base: str) -> str:
    answer = _ask(http, f"{base}/models")
    rows = answer.get("data") if isinstance(answer, dict) else None
    models = [str(row.get("id")) for row in rows or () if isinstance(row, dict)]
    if len(models) != 1:
        having = f"it has {', '.join(models[:10])}" if models else "it names none"
        raise CheckpointError(f"{base}: which model? {having}: add #model=NAME")
    return models[0]


def _ask(http: _Http, url: str) -> Any:
    """Return the answer to a question that a server need not understand; None of none."""
    try:
        return http.call(url, None, _Patience(_OPENING_SECONDS), lambda answer: answer)
    except _RefusedError as error:
        if error.status in (401, 403):
            raise
        return None


def _embed(
    http: _Http,
    server: EmbeddingServer,
    texts: Sequence[str],
    width: int | None,
    patience: _Patience,
) -> Float32:
    """Return the vectors [N, width] of texts, in one call, or more where it is too much."""

    def read(answer: Any) -> Float32:
        vectors = server.parse(answer, len(texts))
        if width not in (None, vectors.shape[1]):
            raise ValueError(f"vectors of {vectors.shape[1]} numbers, not of {width}")
        return vectors

    try:
        vectors: Float32 = http.call(server.url, server.request(texts), patience, read)
        return vectors
    except _RefusedError as error:
        short = len(texts) == 1 and len(texts[0]) < 2 * _SHORTEST_PART
        if short or error.status not in _TOO_LONG:
            raise
    middle = len(texts) // 2 or len(texts[0]) // 2
    if len(texts) > 1:
        parts = [texts[:middle], texts[middle:]]
    else:
        parts = [[part] for part in (texts[0][:middle], texts[0][middle:]) if part.strip()]
    found = [_embed(http, server, part, width, patience) for part in parts]
    if len(texts) > 1:
        return np.concatenate(found)
    mean: Float32 = unit(np.concatenate(found)).mean(axis=0, keepdims=True)
    return mean


class ServerEncoder(BlockMeanEncoder):
    """An encoder whose blocks a server encodes."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self._server: EmbeddingServer = checkpoint.model["server"]
        self._http = _Http()
        self.precision = "server"
        self.provider = self._server.url
        self.threads = _CALLS
        self.batch_tokens = _CALLS * self._server.texts_a_call * checkpoint.block_length

    def encode_many_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N blocks of many documents: [N, block_dimension].

        Raises:
            EncoderServerError: the server failed, though an offline job waits long for it.
        """
        return self._encode(blocks, _Patience(_JOB_SECONDS))

    def encode_blocks(self, blocks: Sequence[Sequence[int]]) -> Float32:
        """Encode N sentence blocks: [N, block_dimension].

        Raises:
            EncoderServerError: the server failed.
        """
        return self._encode(blocks, _Patience(_REQUEST_SECONDS))

    def _encode(self, blocks: Sequence[Sequence[int]], patience: _Patience) -> Float32:
        model = self.checkpoint.model
        prompt, width, most = model["prompt"], model["width"], self._server.texts_a_call
        # A server may refuse a text without a character that it can see.
        texts = [prompt + ("".join(map(chr, block)).strip() or ".") for block in blocks]
        calls = [texts[start : start + most] for start in range(0, len(texts), most)]

        def encode(call: Sequence[str]) -> Float32:
            return _embed(self._http, self._server, call, width, patience)

        try:
            with ThreadPoolExecutor(_CALLS) as pool:
                try:
                    found = list(pool.map(encode, calls))
                except BaseException:  # an interruption too: the other calls do not hold it up
                    patience.ended.set()
                    raise
        except _RefusedError as error:
            raise EncoderServerError(f"{self._server.url}: {error}") from error
        vectors = np.concatenate([np.zeros((0, width), dtype=np.float32), *found])
        return unit(vectors[:, : self.checkpoint.block_dimension])
