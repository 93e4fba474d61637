"""A service with an ERNIE-Doc: what is indexed, matched, explained and compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer


@pytest.fixture
def client(make_client: Callable[..., Any], tiny_ernie_doc: Path, texts: dict[str, str]) -> Any:
    client = make_client(encoder=tiny_ernie_doc)
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def test_texts_and_ids_are_matched_and_explained(client: Any, texts: dict[str, str]) -> None:
    asked = {"text": texts["bees"], "top_k": 2, "explain": {"matches": 2}}
    answer = client.post("/match", json=asked)
    assert answer.status_code == 200, answer.text
    best = answer.json()["matches"][0]
    assert best["id"] == "bees"
    assert best["vector_score"] == pytest.approx(1, abs=1e-3)
    passages = best["explanation"]["passages"]
    assert passages[0]["left"]["text"] == passages[0]["right"]["text"]
    answer = client.post("/match", json={"id": "ants", "explain": {"matches": 3}}).json()
    assert {match["id"] for match in answer["matches"]} == set(texts) - {"ants"}
    assert all(match["explanation"] is not None for match in answer["matches"])
    compared = client.post("/compare", json={"left": {"id": "ants"}, "right": {"text": "Ants."}})
    assert compared.status_code == 200, compared.text


def test_stored_vectors_are_those_of_the_whole_document(
    client: Any, texts: dict[str, str], tiny_ernie_doc: Path
) -> None:
    engine = client.app.state.engine
    assert engine.scheduler.cache is None
    checkpoint = load_checkpoint(tiny_ernie_doc)
    encoder = OnnxEncoder(checkpoint, precision="fp32")
    read = BlockTokenizer(checkpoint)(texts["tax law"])
    stored = engine.default.data.store.find(["tax law"])["tax law"].vector_id
    (vectors,) = engine.default.data.store.vectors([stored])[1]
    assert np.abs(vectors - encoder.encode([read]).document_vectors[0]).max() < 1e-3
