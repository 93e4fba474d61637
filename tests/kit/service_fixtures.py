"""What the tests of the service share: an engine over the tiny checkpoint, and clients."""

import asyncio
import os
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpcore2
import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from encoder.arrays import Float32
from encoder.blocks import Receipt, SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from service.app import create_app
from service.engine import Collections, Engine
from service.settings import Settings
from service.startup import open_engine

MakeSettings = Callable[..., Settings]

TEXTS = {
    "ants": "Ants live in colonies. Each colony has a queen. Workers carry leaves and seeds home.",
    "bees": "Bees live in hives. Each hive has a queen. Workers carry nectar and pollen home.",
    "tax law": "The tribunal held that the assessment was void. The appeal was allowed with costs.",
    "a/b c/ü?#%": "Rivers carve valleys over thousands of years. Ice does the same, but faster.",
}


class Unforeseen(BaseException):
    """What no encoder should raise."""


class SteppedEncoder:
    """An encoder whose calls a test lets end, or fail, one by one.

    Its vectors are functions of the tokens, so that a block in a wrong place is seen: a block
    vector is [how many tokens, their sum], a document vector the mean of its block vectors.
    """

    recurrent = False
    fails, kills, fails_document = 666, 667, 668  # tokens that do

    def __init__(self, *, threads: int = 1, batch_tokens: int = 0, opened: bool = True) -> None:
        self.threads = threads
        self.batch_tokens = batch_tokens
        self.checkpoint = SimpleNamespace(block_dimension=2)
        self.calls: list[list[tuple[int, ...]]] = []
        self.packed_documents: list[int] = []
        self.begun = threading.Semaphore(0)
        self._permits = threading.Semaphore(0)
        if opened:
            self.let()

    def let(self, calls: int = 10_000) -> None:
        """Let so many calls end."""
        self._permits.release(calls)

    def wait_for_call(self) -> None:
        """Wait until one more call has begun."""
        assert self.begun.acquire(timeout=120)

    def encode_blocks(self, blocks: Sequence[tuple[int, ...]]) -> Float32:
        self.calls.append([tuple(block) for block in blocks])
        self.begun.release()
        self._permits.acquire()
        tokens = {token for block in blocks for token in block}
        if self.fails in tokens:
            raise RuntimeError("out of memory")
        if self.kills in tokens:
            raise Unforeseen
        return np.array([[len(block), sum(block)] for block in blocks], dtype=np.float32)

    def encode_document(self, blocks: Sequence[Sequence[int]], block_vectors: Float32) -> Float32:
        if (block_vectors[:, 1] == self.fails_document).any():
            raise RuntimeError("out of memory")
        return block_vectors.mean(axis=0)

    def encode_documents(
        self, blocks: Sequence[Sequence[Sequence[int]]], block_vectors: Sequence[Float32]
    ) -> Float32:
        self.packed_documents.append(len(blocks))
        each = [self.encode_document(*pair) for pair in zip(blocks, block_vectors, strict=True)]
        return np.array(each)

    @staticmethod
    def expected(document: SentenceBlocks) -> list[float]:
        """Return the document vector that it gives."""
        blocks = [[len(block), sum(block)] for block in document.blocks]
        return np.array(blocks, dtype=np.float32).mean(axis=0).tolist()


def document_of(*blocks: Sequence[int]) -> SentenceBlocks:
    """Return a document of these sentence blocks."""
    tokens = sum(len(block) for block in blocks)
    return SentenceBlocks(
        blocks=tuple(tuple(block) for block in blocks),
        offsets=tuple((0, 0) for _ in blocks),
        receipt=Receipt(tokens, tokens, len(blocks), 0, tokens),
    )


class Client:
    """A client of an application in this process; each request has an event loop of its own."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            async with connect(self.app) as client:
                return await client.request(method, path, **arguments)

        return asyncio.run(send())

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("GET", path, **arguments)

    def delete(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("DELETE", path, **arguments)

    def post(self, path: str, **arguments: Any) -> httpx.Response:
        return self.request("POST", path, **arguments)


def connect(app: FastAPI) -> httpx.AsyncClient:
    """Return a client to be used within one event loop."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def settings_for(given: dict[str, Any]) -> Settings:
    """Return settings for a small engine."""
    small = {"precision": "fp32", "threads": 2, "max_queue_tokens": 4096, "max_queue_seconds": 60.0}
    small["block_cache_bytes"] = 1 << 20  # the whole of it is written to at the start
    small["alignment_budget_ms"] = 60_000.0  # a loaded machine aligns the same as an idle one
    settings = Settings.__new__(Settings)  # its own beginning reads the environment for 10 ms
    BaseModel.__init__(settings, **{**small, **given})
    return settings


def fill(client: Client) -> Client:
    """Index TEXTS."""
    documents = [
        {"id": name, "text": text, "title": name.title(), "metadata": {"letters": len(name)}}
        for name, text in TEXTS.items()
    ]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def with_parts(engine: Engine, **changed: Any) -> Engine:
    """Return an engine with other parts: its own, or of its default collection; it has no other."""
    names = {field.name for field in fields(Engine)}
    shared = {name: part for name, part in changed.items() if name in names}
    other = replace(engine, **shared, collections=Collections())
    own = {name: part for name, part in changed.items() if name not in names}
    if "scores" in own:
        own["scoring"] = copy(engine.default.scoring)
        own["scoring"].present = own.pop("scores")
    other.collections.put(replace(engine.default, engine=other, **own))
    return other


@pytest.fixture(scope="session", autouse=True)
def _encoders_are_opened_once() -> Iterator[None]:
    """Let services and commands share encoders: to open one is a third of a start of either.

    Each is warmed up once, by the first that starts with it.
    """
    opened: dict[str, Encoder] = {}

    def open_shared(checkpoint: Checkpoint, **options: Any) -> Encoder:
        key = f"{checkpoint} {options}"
        if key in opened:
            return opened[key]
        encoder = open_encoder(checkpoint, **options)
        if "server" not in checkpoint.model:  # which may be another one behind the same address
            opened[key] = encoder
            encoder.warm_up = cache(encoder.warm_up)
        return encoder

    with pytest.MonkeyPatch.context() as patch:
        for user in ("service.startup", "service.cli.opening"):
            patch.setattr(f"{user}.open_encoder", open_shared)
        yield


def _once_of_each_place(read: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    made = cache(lambda _, *given, **named: read(*given, **named))
    return lambda *given, **named: made(os.environ.get("SSL_CERT_FILE"), *given, **named)


@pytest.fixture(scope="session", autouse=True)
def _certificates_are_read_once() -> Iterator[None]:
    """Let webhooks and clients share the certificates of the system, which take 40 ms to read."""
    with pytest.MonkeyPatch.context() as patch:
        for library, name in (
            (httpcore2, "default_ssl_context"),
            (httpx._transports.default, "create_ssl_context"),
        ):
            patch.setattr(library, name, _once_of_each_place(getattr(library, name)))
        yield


@pytest.fixture(scope="session")
def make_shared_client(
    tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Client]]:
    """Return a maker of clients that live as long as the session, each with changed settings."""
    engines: list[Engine] = []

    def make(**changed: Any) -> Client:
        own = {"encoder": tiny_checkpoint, "data": tmp_path_factory.mktemp("shared") / "data"}
        engine = open_engine(settings_for({**own, **changed}))
        engines.append(engine)
        return Client(create_app(engine.settings, engine))

    yield make
    for engine in engines:
        engine.opened.close()


@pytest.fixture(scope="session")
def library(make_shared_client: Callable[[], Client]) -> Client:
    """Return a client of an application that holds TEXTS; do not change what it holds."""
    return fill(make_shared_client())


@pytest.fixture(scope="session")
def empty(make_shared_client: Callable[[], Client]) -> Client:
    """Return a client of an application that holds nothing; leave nothing in it."""
    return make_shared_client()


@pytest.fixture
def make_settings(tiny_checkpoint: Path, tmp_path: Path) -> MakeSettings:
    """Return a maker of settings for the tiny checkpoint and a data directory of the test's own."""

    def make(**changed: Any) -> Settings:
        own = {"encoder": tiny_checkpoint, "data": tmp_path / "data"}
        return settings_for({**own, **changed})

    return make


@pytest.fixture
def make_client(make_settings: MakeSettings) -> Iterator[Callable[..., Client]]:
    """Return a maker of clients, each of an engine with an empty index and changed settings."""
    engines: list[Engine] = []

    def make(**changed: Any) -> Client:
        engine = open_engine(make_settings(**changed))
        engines.append(engine)
        return Client(create_app(engine.settings, engine))

    yield make
    for engine in engines:
        engine.opened.close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    """Return a client of an application with an empty index."""
    return make_client()


@pytest.fixture
def engine(client: Client) -> Engine:
    """Return the engine of `client`, with an empty index."""
    return client.app.state.engine


@pytest.fixture
def filled(client: Client) -> Client:
    """Return a client of an application that holds TEXTS."""
    return fill(client)


@pytest.fixture
def texts() -> dict[str, str]:
    """Return the texts that `filled` holds, by id."""
    return TEXTS


@pytest.fixture
def stepped_encoder() -> type[SteppedEncoder]:
    """Return the class of encoders whose calls a test lets end."""
    return SteppedEncoder


@pytest.fixture
def make_document() -> Callable[..., SentenceBlocks]:
    """Return a maker of documents from sentence blocks."""
    return document_of


@pytest.fixture
def connected() -> Callable[[FastAPI], httpx.AsyncClient]:
    """Return a maker of clients to be used within one event loop."""
    return connect


@pytest.fixture
def hold_writer() -> Iterator[Callable[[Client], threading.Event]]:
    """Return what holds every write of the engine of a client until the event is set."""
    gate = threading.Event()

    def hold(client: Client) -> threading.Event:
        client.app.state.engine.default.writer.submit(gate.wait)
        return gate

    yield hold
    gate.set()


def counted(engine: Engine, name: str, **labels: str) -> float:
    """Return the value of a metric of an engine; 0 where it has none yet."""
    return engine.metrics.registry.get_sample_value(name, labels) or 0.0
