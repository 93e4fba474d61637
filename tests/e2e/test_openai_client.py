"""The official client of OpenAI's API, against the real server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.kit.process_fixtures import add_key, run, serving
from tests.kit.waiting import TIMEOUT_S

TOPICS = ("violin orchestra sonata", "granite basalt lava", "harbour sailor anchor")
DOCUMENTS = {
    f"d{n}": f"Part {n} is about the {TOPICS[n % 3]}, and the {TOPICS[n % 3].split()[n % 2]}."
    for n in range(60)
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path) -> Path:
    """Return a data directory."""
    folder = tmp_path_factory.mktemp("openai")
    corpus = folder / "corpus.jsonl"
    lines = (json.dumps({"id": name, "text": text}) for name, text in DOCUMENTS.items())
    corpus.write_text("\n".join(lines))
    done = run("index", corpus, "--data", folder / "data", checkpoint=tiny_checkpoint)
    assert done.returncode == 0, done.stderr
    return folder / "data"


@pytest.fixture(scope="module")
def token(data: Path) -> str:
    return add_key(data, "read")


@pytest.fixture(scope="module")
def url(
    data: Path, token: str, tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the base URL of a server that asks for a key, and limits rates."""
    settings = {"rate_limit_tokens_per_minute": 20_000}
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, data, tiny_checkpoint, **settings) as server:
        yield f"{server.url}/v1"


@pytest.fixture(scope="module")
def openai() -> Any:
    """Return the library, which only these tests load: it takes a process a second."""
    import openai

    return openai


@pytest.fixture
def client(openai: Any, url: str, token: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=url, api_key=token, max_retries=0) as made:
        yield made


def cosines(server: str, token: str) -> dict[str, float]:
    """Return the cosines of the stored vectors of d0 and of the documents that match it."""
    question = {"id": "d0", "mode": "semantic", "align": False, "top_k": 20}
    headers = {"Authorization": f"Bearer {token}"}
    answer = httpx.post(f"{server}/match", json=question, headers=headers, timeout=TIMEOUT_S).json()
    return {match["id"]: match["vector_score"] for match in answer["matches"]}


def test_vectors_are_those_of_the_index(client: Any, url: str, token: str) -> None:
    """The client asks for base64 by itself, and unpacks it."""
    answer = client.embeddings.create(model="longmatch", input=list(DOCUMENTS.values()))
    assert [row.index for row in answer.data] == list(range(len(DOCUMENTS)))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(DOCUMENTS)
    vectors = dict(zip(DOCUMENTS, (np.array(row.embedding) for row in answer.data), strict=True))
    scores = cosines(url.removesuffix("/v1"), token)
    assert len(scores) == 20
    for name, score in scores.items():
        assert vectors["d0"] @ vectors[name] == pytest.approx(score, abs=1e-4)
    plain = client.embeddings.create(
        model=answer.model, input=DOCUMENTS["d0"], encoding_format="float"
    )
    np.testing.assert_allclose(plain.data[0].embedding, vectors["d0"], atol=1e-6)


def test_errors_are_understood(openai: Any, client: Any) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as caught:
        client.embeddings.create(model="longmatch", input=[[1, 2, 3]])
    error = caught.value
    assert (error.code, error.param, error.type) == (
        "invalid_input",
        "input",
        "invalid_request_error",
    )
    assert "token ids" in str(error)
    assert error.request_id
    [model] = client.models.list()
    assert client.models.retrieve("longmatch").id == model.id
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'") as missing:
        client.embeddings.create(model="gpt", input="a")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")
    stranger = client.with_options(api_key="lm_none")
    with pytest.raises(openai.AuthenticationError) as refused:
        stranger.embeddings.create(model="longmatch", input="a")
    assert refused.value.code == "key_required"
