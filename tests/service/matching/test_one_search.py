"""POST /match and `longmatch match` return the same matches with the same scores."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import service.cli.corpora
from tests.tools.command import Run
from tests.tools.paragraphs import text_of

MODES = ("semantic", "lexical", "hybrid")
FEWER = [*(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[:2]), "hybrid"]
NUMBER = 48
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
def query(tmp_path: Path) -> Path:
    path = tmp_path / "query.txt"
    path.write_text(text_of([0, 1, 999]))
    return path


@pytest.fixture
def by_http(holding: Any, query: Path) -> Match:
    def match(**asked: Any) -> list[dict[str, Any]]:
        response = holding.post("/match", json={"text": query.read_text(), **asked})
        assert response.status_code == 200, response.text
        return [
            {name: value for name, value in hit.items() if name not in HTTP_ONLY}
            for hit in response.json()["matches"]
        ]

    return match


# The command neither explains nor reranks, and takes one document.
HTTP_ONLY = ("explanation", "first_stage_score", "like_scores", "unlike_scores")


@pytest.fixture
def by_command(holding: Any, query: Path, longmatch: Run) -> Match:
    """Run the command beside the service, which holds the same data directory open."""

    def match(**asked: Any) -> list[dict[str, Any]]:
        options = ["--mode", asked["mode"], "--top-k", asked["top_k"]]
        if "filter" in asked:
            options += ["--filter", json.dumps(asked["filter"])]
        for excluded in asked.get("exclude", ()):
            options += ["--exclude", excluded]
        options += ["--collapse"] if asked.get("collapse") else []
        answer = longmatch("match", query, *options, "--precision", "fp32", "--json")
        assert answer.status == 0, answer.err
        return list(json.loads(answer.out)["matches"])

    return match


@pytest.fixture
def after_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Set what happens in the service once a command has opened the data directory."""
    opened = service.cli.corpora.opened

    def set_action(action: Callable[[], object]) -> None:
        @contextmanager
        def opened_then(*arguments: Any, **options: Any) -> Iterator[Any]:
            with opened(*arguments, **options) as directory:
                action()
                yield directory

        monkeypatch.setattr(service.cli.corpora, "opened", opened_then)

    return set_action


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
        for name, options in OPTIONS.items():
            asked = {"mode": mode, "top_k": 7, **options}
            expected = by_http(**asked)
            assert len(expected) == 7, (mode, name)
            assert by_command(**asked) == expected, (mode, name)


@pytest.mark.parametrize("mode", FEWER)
@pytest.mark.parametrize("collapse", [False, True])
def test_deleted_documents_cost_no_place(
    holding: Any,
    by_http: Match,
    by_command: Match,
    after_opening: Callable[[Callable[[], object]], None],
    mode: str,
    collapse: bool,
) -> None:
    asked = {"mode": mode, "top_k": 6, "collapse": collapse}
    gone = ids(by_http(mode=mode, top_k=12))

    def delete() -> None:
        for name in gone:
            assert holding.delete(f"/documents/{name}").status_code in (200, 204)

    after_opening(delete)  # the index of the command still has these vectors
    found = by_command(**asked)
    assert len(found) == 6
    assert not set(gone) & set(ids(found))
    assert found == approximately(by_http(**asked))


@pytest.mark.parametrize("mode", FEWER)
def test_documents_that_no_longer_pass_the_filter_cost_no_place(
    holding: Any,
    by_http: Match,
    by_command: Match,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    asked = {"mode": mode, "top_k": 5, "filter": EVEN}
    changed = [int(name[1:]) for name in ids(by_http(mode=mode, top_k=10, filter=EVEN))]
    select = service.cli.corpora.select_documents

    def select_then_change(*arguments: Any) -> Any:
        selected = select(*arguments)
        documents = [document(number, even=False) for number in changed]
        assert holding.post("/index", json={"documents": documents}).status_code == 200
        return selected

    monkeypatch.setattr(service.cli.corpora, "select_documents", select_then_change)
    found = by_command(**asked)
    assert len(found) == 5
    assert not {f"d{number}" for number in changed} & set(ids(found))
    assert found == approximately(by_http(**asked))
