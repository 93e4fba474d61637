"""Sentence models on a server; the contract is in tests/contract."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.encoder import Encoder
from encoder.errors import CheckpointError, EncoderServerError
from encoder.opening import find_encoder, open_encoder
from encoder.sentence_model import server as client
from tests.kit.command import Run
from tests.kit.embedding_server import EmbeddingServer, encode_texts, serve_embeddings
from tests.kit.service_fixtures import TEXTS

LONG = "The harbour was built where two rivers meet. " * 40  # 1,800 characters, over 128 tokens


@pytest.fixture
def server(sentence_model: Callable[[str], Path]) -> Iterator[EmbeddingServer]:
    with serve_embeddings(sentence_model("bert")) as server:
        yield server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between calls take no time, and no call has long."""
    for seconds in ("_CALL_SECONDS", "_JOB_CALL_SECONDS"):
        monkeypatch.setattr(client, seconds, 1.0)
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(client, "_LONGEST_PAUSE", 0.002)


def open_server(server: EmbeddingServer, options: str = "") -> Encoder:
    return open_encoder(find_encoder(f"{server.url}{options}"))


@pytest.mark.parametrize("tei", [True, False])
def test_vectors_are_those_of_the_model(server: EmbeddingServer, tei: bool) -> None:
    server.tei = tei
    texts = ["harbour", "query: harbour", LONG]
    vectors = encode_texts(open_server(server), texts)
    expected = encode_texts(server.model, texts[:2])
    assert np.abs(vectors[:2] - expected).max() <= 1e-5
    cut = open_server(server, "#dimension=8&prompt=query:%20")
    (found,) = encode_texts(cut, ["harbour"])
    wanted = expected[1][:8] / np.linalg.norm(expected[1][:8])
    assert np.abs(found - wanted).max() <= 1e-5


def test_what_is_too_long_is_divided(server: EmbeddingServer) -> None:
    """Each character is read: a block of 1,800 is over what the model takes."""
    server.tei = False
    encoder = open_server(server, "#block=2000")
    encoder.encode([encoder.read(LONG)])
    assert encoder.read(LONG).receipt.tokens_read == len(LONG.rstrip())
    assert server.read[0] == "harbour"  # asks for the dimension
    assert "".join(server.read[1:]) == LONG.rstrip()


def test_a_fingerprint_is_of_all_that_changes_vectors(server: EmbeddingServer) -> None:
    found = [
        find_encoder(server.url + options).fingerprint
        for options in ("", "#block=512", "#dimension=8", "#prompt=query:%20", "#language=de")
    ]
    assert find_encoder(f"{server.url}#block=1000&prompt=").fingerprint == found[0]
    server.info["model_sha"] = "2"
    found.append(find_encoder(server.url).fingerprint)
    server.tei, server.models = False, ["other"]
    found.append(find_encoder(server.url).fingerprint)
    assert len(set(found)) == len(found)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "faults", [[429, 500, 503], ["close", 502, "slow"], ["half", "nan"], ["text"]]
)
def test_what_passes_is_waited_for(server: EmbeddingServer, faults: list[int | str]) -> None:
    encoder = open_server(server)
    server.faults.extend(faults)
    (found,) = encode_texts(encoder, ["harbour"])
    (expected,) = encode_texts(server.model, ["harbour"])
    assert np.abs(found - expected).max() <= 1e-5
    assert not server.faults


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("half", "0 vectors for 1 texts"),
        ("nan", "not finite"),
        ("wide", "vectors of 33 numbers, not of 32"),
        ("text", "not an answer"),
        (403, "status 403"),
        (400, "status 400"),
    ],
)
def test_what_stays_wrong_is_an_error(
    server: EmbeddingServer, fault: int | str, message: str
) -> None:
    encoder = open_server(server)
    server.faults.extend([fault] * 3)
    with pytest.raises(EncoderServerError, match=message):
        encode_texts(encoder, ["harbour"])


@pytest.mark.usefixtures("hasty")
def test_a_request_does_not_wait_for_a_server_that_fails(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_REQUEST_SECONDS", 0.0)
    encoder = open_server(server)
    server.faults.extend([503, 503, "slow"])
    for message in ("status 503", "status 503", "Timeout"):
        with pytest.raises(EncoderServerError, match=message):
            encoder.encode_blocks([[97]])
    assert encoder.encode_blocks([[97]]).shape == (1, 32)


def refuse_keys(server: EmbeddingServer) -> None:
    server.key = "Bearer secret"


def change(**values: Any) -> Callable[[EmbeddingServer], None]:
    return lambda server: [setattr(server, *pair) for pair in values.items()] and None


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (refuse_keys, "", "status 401"),
        (change(info={"model_id": "m", "model_type": {"reranker": {}}}), "", "a reranker"),
        (None, "#model=other", "has the model tiny, not other"),
        (change(tei=False, models=["a", "b"]), "", "which model\\? it has a, b"),
        (change(tei=False, models=[]), "", "it names none"),
        (None, "#block=63", "block=63: must be from 64"),
        (None, "#dimension=33", "dimension=33: must be from 1 to 32"),
        (None, "#prompts=x", "prompt, language, model"),
    ],
)
def test_what_cannot_be_used_is_refused(
    server: EmbeddingServer,
    prepare: Callable[[EmbeddingServer], None] | None,
    options: str,
    message: str,
) -> None:
    if prepare is not None:
        prepare(server)
    with pytest.raises(CheckpointError, match=message):
        find_encoder(f"{server.url}{options}")


def test_urls_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_OPENING_SECONDS", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(CheckpointError, match="no server of embeddings answers"):
            find_encoder(f"http://127.0.0.1:{free.getsockname()[1]}")
    for url, message in (
        ("http://", "is no URL"),
        ("http://host:99999", "is no URL"),
        ("http://host/?model=x", "is no URL"),
        ("https://user:secret@host/v1", "LONGMATCH_ENCODER_KEY"),
    ):
        with pytest.raises(CheckpointError, match=message) as refused:
            find_encoder(url)
        assert "secret" not in str(refused.value)


def test_a_key_is_sent(server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "Bearer secret"
    monkeypatch.setenv(client.KEY, "secret")
    assert find_encoder(server.url).name == "tiny"


@pytest.mark.usefixtures("hasty")
def test_a_request_while_the_server_fails(
    server: EmbeddingServer, make_client: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_REQUEST_SECONDS", 0.0)
    service = make_client(encoder=server.url, max_queue_tokens=300_000)
    body = {"documents": [{"id": "bees", "text": TEXTS["bees"]}]}
    server.poison = TEXTS["bees"][:20]
    refused = service.post("/index", json=body)
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/not-ready")
    assert int(refused.headers["Retry-After"]) > 0
    assert server.url not in refused.text
    server.poison = None
    assert service.post("/index", json=body).json()["indexed"] == 1
    found = service.post("/match", json={"text": TEXTS["bees"][:200]})
    assert found.json()["matches"][0]["id"] == "bees"


@pytest.mark.usefixtures("hasty")
def test_index_goes_on_where_it_was(
    server: EmbeddingServer, longmatch: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LONGMATCH_ENCODER")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(json.dumps({"id": n, "text": t}) for n, t in TEXTS.items()))
    server.poison = TEXTS["bees"][:20]
    failed = longmatch("index", corpus, "--encoder", server.url)
    assert (failed.status, "not an answer: vectors of 33 numbers" in failed.err) == (2, True)
    server.poison = None
    done = longmatch("index", corpus)  # the directory remembers the server
    assert (done.status, "4 encoded" in done.err) == (0, True)
    query = tmp_path / "query.txt"
    query.write_text(TEXTS["bees"])
    found = longmatch("match", query, "--mode", "semantic", "--json")
    assert json.loads(found.out)["matches"][0]["id"] == "bees"
    server.info["model_sha"] = "2"
    other = longmatch("match", query)
    assert (other.status, "longmatch reencode" in other.err) == (2, True)
