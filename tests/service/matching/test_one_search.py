"""POST /match and `longmatch match` return the same matches with the same scores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import service.cli.corpora
from tests.kit.command import Run
from tests.kit.paragraphs import text_of

MODES = ("semantic", "lexical", "hybrid")
NUMBER = 48
QUERY = text_of([0, 1, 999])
EVEN = {"field": "even", "equal": True}
SMALL = {"field": "number", "range": {"lt": 20}}
# Options of POST /match and of the command.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter": EVEN},
    "exclude": {"exclude": ["d0", "d7", "nothing"]},
    "collapse": {"collapse": True},
    "all": {"filter": SMALL, "exclude": ["d2", "d9"], "collapse": True},
}

Match = Callable[..., list[dict[str, Any]]]


def document(number: int, **metadata: object) -> dict[str, Any]:
    """Return one of `NUMBER` documents: every sixth is a copy of the one before.

    All others differ in length, so that no two of them have equal scores.
    """
    content = number - 1 if number % 6 == 5 else number
    shared = " ".join(text_of([content % 2]).split()[:12])
    own = " ".join(f"own{content}w{word}" for word in range(40 + content))
    known = {"number": number, "even": number % 2 == 0, **metadata}
    return {"id": f"d{number}", "text": f"{shared} {own}", "metadata": known}


@pytest.fixture
def holding(make_client: Callable[..., Any]) -> Any:
    """Return a client of a service that holds the documents."""
    client = make_client(max_queue_tokens=100_000)
    documents = [document(number) for number in range(NUMBER)]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


@pytest.fixture
def by_http(holding: Any) -> Match:
    def match(**options: Any) -> list[dict[str, Any]]:
        response = holding.post("/match", json={"text": QUERY, **options})
        assert response.status_code == 200, response.text
        return [
            {name: value for name, value in hit.items() if name not in HTTP_ONLY}
            for hit in response.json()["matches"]
        ]

    return match


# The command neither explains nor reranks, and takes one document.
HTTP_ONLY = ("explanation", "first_stage_score", "like_scores", "unlike_scores")


@pytest.fixture
def by_command(holding: Any, tmp_path: Path, longmatch: Run) -> Match:
    """Run the command beside the service, which holds the same data directory open."""
    query = tmp_path / "query.txt"
    query.write_text(QUERY)

    def match(**given: Any) -> list[dict[str, Any]]:
        options = ["--mode", given["mode"], "--top-k", given["top_k"]]
        if "filter" in given:
            options += ["--filter", json.dumps(given["filter"])]
        for excluded in given.get("exclude", ()):
            options += ["--exclude", excluded]
        options += ["--collapse"] if given.get("collapse") else []
        answer = longmatch("match", query, *options, "--precision", "fp32", "--json")
        assert answer.status == 0, answer.err
        return list(json.loads(answer.out)["matches"])

    return match


def approximately(matches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Expect these matches; the last bit of a score depends on how many candidates there were."""
    scores = ("score", "semantic_score", "vector_score", "alignment_score", "lexical_score")
    return [
        {
            name: pytest.approx(value, abs=1e-6) if name in scores and value is not None else value
            for name, value in hit.items()
        }
        for hit in matches
    ]


def ids(matches: list[dict[str, Any]]) -> list[str]:
    return [hit["id"] for hit in matches]


def test_both_find_the_same(by_http: Match, by_command: Match) -> None:
    for mode in MODES:
        for options in OPTIONS.values():
            expected = by_http(mode=mode, top_k=7, **options)
            assert len(expected) == 7, (mode, options)
            assert by_command(mode=mode, top_k=7, **options) == expected, (mode, options)


@pytest.mark.parametrize("mode", MODES)
def test_documents_that_change_meanwhile_cost_no_place(
    holding: Any,
    by_http: Match,
    by_command: Match,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """They are deleted, or pass the filter no longer, once the command has opened the directory."""
    options = {"mode": mode, "filter": EVEN, "collapse": True}
    first = ids(by_http(top_k=10, **options))
    deleted, changed = first[::2], first[1::2]
    select = service.cli.corpora.select_documents

    def select_then_change(*arguments: Any) -> Any:
        selected = select(*arguments)
        for name in deleted:
            assert holding.delete(f"/documents/{name}").status_code in (200, 204)
        documents = [document(int(name[1:]), even=False) for name in changed]
        assert holding.post("/index", json={"documents": documents}).status_code == 200
        return selected

    monkeypatch.setattr(service.cli.corpora, "select_documents", select_then_change)
    found = by_command(top_k=5, **options)
    assert len(found) == 5
    assert not set(first) & set(ids(found))
    assert found == approximately(by_http(top_k=5, **options))
