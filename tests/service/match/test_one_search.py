"""All surfaces return the same matches, and for a pair the same score, probability and verdict."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import index.search.rank
from encoder.alignment.space import Whitening, neutral_space
from encoder.checkpoint import vector_space
from encoder.comparison.compare import percent
from encoder.opening import find_encoder
from index.directory.data_directory import open_data_directory
from tests.kit.calibrations import calibrated, of_corpus
from tests.kit.command import Run
from tests.kit.paragraphs import text_of
from tests.service.standing.test_standing_queries import events, make

MODES = ("semantic", "lexical", "hybrid")
NUMBER = 48
QUERY = text_of([0, 1, 999])
EVEN = {"field": "even", "equal": True}
SMALL = {"field": "number", "range": {"lt": 20}}
# Options of POST /match and of the command.
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "filter": {"filter": EVEN},
    "collapse": {"collapse": True},
    "all": {"filter": SMALL, "collapse": True},
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
        response = holding.post("/match", json={"text": QUERY, "title": "Query"} | options)
        assert response.status_code == 200, response.text
        return [
            {name: value for name, value in hit.items() if name not in HTTP_ONLY}
            for hit in response.json()["matches"]
        ]

    return match


HTTP_ONLY = ("explanation",)


@pytest.fixture
def by_command(
    holding: Any, tmp_path: Path, longmatch: Run, monkeypatch: pytest.MonkeyPatch
) -> Match:
    """Run the command beside the service, which holds the same data directory open."""
    monkeypatch.setenv("LONGMATCH_PRECISION", "fp32")
    query = tmp_path / "query.txt"
    query.write_text(QUERY)

    def match(**given: Any) -> list[dict[str, Any]]:
        options = ["--mode", given["mode"], "--top-k", given["top_k"]]
        if "filter" in given:
            options += ["--filter", json.dumps(given["filter"])]
        options += ["--collapse"] if given.get("collapse") else []
        answer = longmatch("match", query, *options, "--json")
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
    for mode, name in (*product(MODES, ["all"]), *product(["hybrid"], OPTIONS)):
        options = OPTIONS[name]
        expected = by_http(mode=mode, top_k=7, **options)
        assert len(expected) == 7, (mode, options)
        assert by_command(mode=mode, top_k=7, **options) == expected, (mode, options)


@pytest.mark.parametrize(
    "mode", ["hybrid", *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[:2])]
)
def test_documents_that_change_meanwhile_cost_no_place(
    holding: Any, by_http: Match, by_command: Match, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """They are deleted, or pass the filter no longer, once the command has opened the directory."""
    options = {"mode": mode, "filter": EVEN, "collapse": True}
    first = ids(by_http(top_k=10, **options))
    deleted, changed = first[::2], first[1::2]
    select = index.search.rank.select_documents

    def select_then_change(*arguments: Any) -> Any:
        selected = select(*arguments)
        for name in deleted:
            assert holding.delete(f"/documents/{name}").status_code in (200, 204)
        documents = [document(int(name[1:]), even=False) for name in changed]
        assert holding.post("/index", json={"documents": documents}).status_code == 200
        return selected

    with monkeypatch.context() as patched:
        patched.setattr(index.search.rank, "select_documents", select_then_change)
        found = by_command(top_k=5, **options)
    assert len(found) == 5
    assert not set(first) & set(ids(found))
    assert found == approximately(by_http(top_k=5, **options))


CALIBRATED = ("probability", "false_positive_rate")  # steeper than scores
PAIR = (
    *("score", "semantic_score", "vector_score", "alignment_score", "lexical_score"),
    *(*CALIBRATED, "relevant", "relation"),
)


def whitening(model: Path, data: Path) -> None:
    """Make a data directory for a sentence model, in a space that whitens document vectors."""
    space = vector_space(find_encoder(str(model)))
    rows = np.random.default_rng(1).random((space.dimension + 1, space.dimension), np.float32)
    fitted = replace(neutral_space(space.dimension), documents=Whitening(rows[0], rows[1:]))
    open_data_directory(data, **asdict(space), alignment=fitted).close()
    of_corpus(space.fingerprint).write(data)


@pytest.mark.parametrize("whitened", [False, True])
def test_a_pair_has_one_score_on_all_surfaces(
    make_client: Callable[..., Any],
    tiny_checkpoint: Path,
    sentence_model: Callable[[str], Path],
    tmp_path: Path,
    longmatch: Run,
    whitened: bool,
) -> None:
    checkpoint, data = calibrated(tiny_checkpoint, tmp_path)
    if whitened:
        checkpoint, data = sentence_model("static"), tmp_path / "whitened"
        whitening(checkpoint, data)
    client = make_client(encoder=checkpoint, data=data, precision=None, max_queue_tokens=100_000)
    documents = [document(number) for number in range(0, NUMBER, 3)]
    # The titles are those that commands take from the names of files.
    left, right = documents[1] | {"title": "Left"}, documents[3] | {"title": "Right"}
    others = [documents[0], documents[2], *documents[4:]]
    put = ({"documents": [left, *others]}, {"documents": [right]})
    assert client.post("/index", json=put[0]).status_code == 200
    standing = make(client, id=left["id"], min_score=-1)
    assert client.post("/index", json=put[1]).status_code == 200
    (event,) = events(client, standing["id"])
    files = [tmp_path / "left.txt", tmp_path / "right.txt"]
    for file, given in zip(files, (left, right), strict=True):
        file.write_text(given["text"])

    def matched(**query: Any) -> dict[str, Any]:
        answer = client.post("/match", json={**query, "top_k": NUMBER}).json()
        (hit,) = (hit for hit in answer["matches"] if hit["id"] == right["id"])
        return dict(hit)

    def typed(*given: object) -> Any:
        answer = longmatch(*given, "--encoder", checkpoint, "--data", data, "--json")
        assert answer.status == 0, answer.err
        return json.loads(answer.out)

    ids = [{"id": side["id"]} for side in (left, right)]
    texts = [{"text": side["text"], "title": side["title"]} for side in (left, right)]
    names = [f"id:{side['id']}" for side in (left, right)]
    sides = [(a, b) for a in (ids[0], texts[0]) for b in (ids[1], texts[1])]
    compared = [client.post("/compare", json={"left": a, "right": b}).json() for a, b in sides]
    hits = [matched(**query, explain={"matches": NUMBER}) for query in (ids[0], texts[0])]
    printed = typed("match", files[0], "--top-k", NUMBER)["matches"]
    output = tmp_path / "pairs.jsonl"
    where = ("--encoder", checkpoint, "-o", output)
    assert longmatch("pairs", data, "--min-vector-score", -1, *where).status == 0
    lines = [client.get("/pairs?min_vector_score=-1").text, output.read_text()]
    pairs = [json.loads(line) for text in lines for line in text.splitlines()]
    surfaces = [
        event, matched(**ids[0]), *hits, *(hit["explanation"] for hit in hits), *compared,
        *(hit for hit in printed if hit["id"] == right["id"]),
        *(typed("compare", a, b) for a in (names[0], files[0]) for b in (names[1], files[1])),
        *(pair for pair in pairs if {pair["left"], pair["right"]} == {left["id"], right["id"]}),
    ]  # fmt: skip
    assert len(surfaces) == 17
    expected = compared[0]
    assert {name for name in PAIR if expected[name] is None} == set()
    for number, surface in enumerate(surfaces):
        shown = {name: surface[name] for name in PAIR if name in surface}
        assert {"score", "probability"} <= shown.keys()
        same = {
            name: pytest.approx(expected[name], abs=1e-4 if name in CALIBRATED else 1e-5)
            if isinstance(value, float)
            else expected[name]
            for name, value in shown.items()
        }
        assert shown == same, number
    page = client.post(
        "/compare", json={"left": ids[0], "right": ids[1]}, headers={"accept": "text/html"}
    ).text
    assert f"The score is {expected['score']:.2f} (" in page
    likely = percent(expected["probability"]).replace(" ", "\N{NO-BREAK SPACE}")
    assert f"<b>{likely}</b> likely to match" in page
    text = longmatch("compare", *names, "--encoder", checkpoint, "--data", data).out
    assert text.startswith(
        f"{expected['relation']} "
        f"(score {expected['score']:.4f}, probability {expected['probability']:.2f})"
    )
