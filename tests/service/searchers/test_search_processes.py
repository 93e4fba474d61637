"""Search processes: the same answers as threads, whatever is written or killed meanwhile."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from service.searchers.pool import SearchProcesses
from tests.tools.paragraphs import text_of

MODES = ("semantic", "lexical", "hybrid")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter": {"field": "number", "range": {"lt": 20}}},
    "exclude": {"exclude": ["d1", "d7", "nothing"]},
    "collapse": {"collapse": True},
    "bounds": {"min_score": 0.2},
    "unaligned": {"align": False},
    "wide": {"top_k": 40},
}
SECONDS = 30


def document(number: int) -> dict[str, Any]:
    """Return one of the documents: every sixth is a copy of the one before."""
    content = number - 1 if number % 6 == 5 else number
    own = " ".join(f"own{content}w{word}" for word in range(40 + content))
    text = f"{text_of([content % 3, content])} {own}"
    return {"id": f"d{number}", "text": text, "title": f"Title {number}", "metadata": {"number": number}}


def processes(client: Any) -> SearchProcesses:
    found = client.app.state.engine.search_processes
    assert isinstance(found, SearchProcesses)
    return found


def wait_until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def counted(client: Any, name: str) -> float:
    return client.app.state.engine.metrics.registry.get_sample_value(name) or 0.0


@pytest.fixture(scope="module")
def served(make_shared_client: Callable[..., Any]) -> Any:
    """Return a client of a service with a search process that is ready, and documents."""
    client = make_shared_client(max_queue_tokens=100_000, search_processes=1)
    documents = [document(number) for number in range(48)]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    wait_until(lambda: processes(client).ready() == 1)
    return client


@pytest.fixture
def in_process(served: Any) -> Iterator[Callable[..., Any]]:
    """Return what asks the same service without its processes."""


def answer(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    left = counted(client, "longmatch_search_process_left_total")
    response = client.post("/match", json=body)
    assert response.status_code == 200, response.text
    assert counted(client, "longmatch_search_process_left_total") == left
    return dict(response.json())


def test_x(served: Any) -> None:
    for mode in MODES:
        a = answer(served, {"id": "d3", "mode": mode})
        print(a["matches"][:2], a["timing"] if "timing" in a else list(a))
        a = answer(served, {"text": document(3)["text"], "mode": mode})
    n=time.time()
    for i in range(50): answer(served, {"id": "d3"})
    print((time.time()-n)/50)
