"""Every method of both clients, against the real server."""

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from longmatch import (
    Align,
    AuthenticationError,
    ConflictError,
    DeadlineExceededError,
    Document,
    Explain,
    ForbiddenError,
    InvalidRequestError,
    JobFailedError,
    MatchOptions,
    NotFoundError,
    Stored,
    Text,
)

from service.keys import Scope
from tests.clients.conftest import DOCUMENTS, TEXTS
from tests.kit.process_fixtures import Server, add_key, serving
from tests.kit.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def client(make_longmatch: Callable[..., Any], server: Server) -> Any:
    return make_longmatch(server.url)


def ids(matches: Any) -> list[str]:
    return [match.id for match in matches.matches]


def test_match(client: Any) -> None:
    found = client.match(TEXTS["ants"], MatchOptions(top_k=2))
    assert ids(found)[0] == "ants"
    assert len(found.matches) == 2
    assert found.matches[0].title == "About ants"
    assert found.matches[0].metadata == {"letters": 4}
    assert found.receipt.tokens == found.receipt.tokens_read > 10
    assert "ants" not in ids(client.match(Stored("ants")))
    assert ids(client.match(Text("Something of a colony.", "About ants")))[0] == "ants"
    queries = [Stored("ants"), TEXTS["ants"], Text(TEXTS[".."])]
    several = client.match_many(queries, MatchOptions(top_k=1))
    assert [ids(result)[0] for result in several][1:] == ["ants", ".."]


def test_the_options_of_a_match(client: Any) -> None:
    options = MatchOptions(
        mode="hybrid", filter={"field": "letters", "range": {"gte": 3}}, exclude=["bees"],
        min_score=-1.0, align=Align(candidates=3, budget_ms=60_000),
        explain=Explain(matches=1, passages=2), collapse=True,
    )  # fmt: skip
    found = client.match(TEXTS["bees"], options)
    assert found.scored_as == "hybrid"
    assert set(ids(found)) == {"ants", "bees/2", "a/b c/ü?#%"}
    assert found.alignment.candidates == 3
    first = found.matches[0]
    assert first.id == "bees/2"
    assert first.explanation.relation == "identical"
    assert first.explanation.passages[0].left.text
    assert found.matches[1].explanation is None
    plain = client.match(Stored("bees"), MatchOptions(mode="semantic", align=False, top_k=1))
    assert (plain.alignment, plain.matches[0].lexical_score) == (None, None)
    with pytest.raises(InvalidRequestError) as caught:
        client.match("a", MatchOptions(rerank=5, min_probability=0.5))
    assert {error.pointer for error in caught.value.errors} >= {"#/rerank"}


def test_examples(client: Any) -> None:
    options = MatchOptions(explain=Explain(matches=1, passages=1))
    found = client.match_examples([Stored("ants"), TEXTS["bees"]], [TEXTS[".."]], options)
    assert ids(found)[0] == "bees"  # the same text
    assert "ants" not in ids(found)
    first = found.matches[0]
    assert (len(first.like_scores), len(first.unlike_scores)) == (2, 1)
    assert first.explanation.relation == "identical"
    assert client.match_examples([Stored("ants")]).matches[0].unlike_scores == []


def test_similar_and_family(client: Any) -> None:
    assert ids(client.similar("bees", top_k=1, min_score=0.2)) == ["bees/2"]
    assert ids(client.similar("a/b c/ü?#%", top_k=1))
    members = list(client.family("bees", page_size=1))
    assert [(member.id, member.copy) for member in members] == [("bees", True), ("bees/2", True)]
    assert list(client.family("ants")) == []


def test_facets_and_map(client: Any) -> None:
    client.index([Document("new", "Rivers carve valleys.", metadata={"kind": "a", "n": True})])
    found = {facet.field: facet.values[0].value for facet in client.facets()}
    assert found["n"] is True
    assert client.facets(where={"field": "kind", "equal": "absent"}) == []
    shown = []
    wait_until(lambda: shown.append(client.map()) or shown[-1].progress is None)
    assert "new" in shown[-1].ids
    assert len(shown[-1].x) == len(shown[-1].ids)
    assert client.map(field="kind").values == ["a"]
    client.delete("new")


def test_feedback(client: Any) -> None:
    given = client.give_feedback(Text(TEXTS["ants"], "About ants"), "bees", 1)
    assert (given.query.id, given.query.title, given.match) == (None, "About ants", "bees")
    other = client.give_feedback(Stored("ants"), "a/b c/ü?#%", 0)
    assert client.give_feedback(Stored("ants"), "a/b c/ü?#%", 2).id == other.id
    listed = {item.id: item.grade for item in client.feedback(page_size=1)}
    assert listed == {given.id: 1, other.id: 2}
    with pytest.raises(NotFoundError):
        client.give_feedback(Stored("ants"), "nobody", 1)
    for name in listed:
        client.delete_feedback(name)
    assert list(client.feedback()) == []
    with pytest.raises(NotFoundError):
        client.delete_feedback(given.id)


def test_compare(client: Any) -> None:
    compared = client.compare(TEXTS["bees"], Stored("bees/2"), passages=3)
    assert compared.relation == "identical"
    assert (compared.left.id, compared.right.id) == (None, "bees/2")
    assert compared.passages[0].kind == "verbatim"
    page = client.compare_as_page(Text("Ants.", "A draft"), Stored("ants"))
    assert page.lower().startswith("<!doctype html>")
    assert "A draft" in page


def test_read_file(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "bees.md"
    path.write_text("# Bees\n\nThey live in hives.")
    found = client.read_file(path, "text/markdown")
    assert (found.title, found.characters) == ("Bees", len(path.read_text()))
    assert found.text == path.read_text()
    with pytest.raises(InvalidRequestError, match="not a readable PDF"):
        client.read_file(path, "application/pdf")


def test_embed_and_models(client: Any) -> None:
    first, second = client.embed([TEXTS["ants"], TEXTS["bees"]])
    assert sum(x * x for x in first.vector) == pytest.approx(1, abs=1e-5)
    score = sum(x * y for x, y in zip(first.vector, second.vector, strict=True))
    found = client.match(Stored("ants"), MatchOptions(mode="semantic", align=False))
    scores = {match.id: match.vector_score for match in found.matches}
    assert scores["bees"] == pytest.approx(score, abs=1e-4)
    assert first.receipt.tokens > 10
    [model] = client.models()
    assert client.model("longmatch") == model
    assert client.embed(["a"], model=model.id)
    with pytest.raises(NotFoundError):
        client.embed(["a"], model="other")


def test_documents_of_any_name(client: Any) -> None:
    assert [item.id for item in client.documents(page_size=2)] == sorted(TEXTS)
    assert {item.id: item for item in client.export()} == {item.id: item for item in DOCUMENTS}
    for document in DOCUMENTS:
        found = client.document(document.id, text=True)
        assert (found.id, found.text) == (document.id, document.text)
        assert client.document(document.id).text is None
        client.delete(document.id)
        with pytest.raises(NotFoundError) as caught:
            client.delete(document.id)
        assert caught.value.type == "/problems/document-not-found"
        [stored] = client.index([document]).documents
        assert (stored.id, stored.unchanged) == (document.id, False)


@pytest.mark.parametrize("kind", ["documents", "plain", "compressed", "packed by us"])
def test_an_upload_of_any_source(client: Any, tmp_path: Path, kind: str) -> None:
    names = [f"u{number}" for number in range(30)]
    documents = [Document(name, f"Upload {name} tells of the sea.", "", {"n": 1}) for name in names]
    lines = "".join(
        json.dumps({"id": document.id, "text": document.text}) + "\n" for document in documents
    )
    path = tmp_path / ("lines.jsonl.gz" if kind == "compressed" else "lines.jsonl")
    path.write_bytes(gzip.compress(lines.encode()) if kind == "compressed" else lines.encode())
    sent: list[tuple[int, int]] = []
    seen: list[float] = []
    upload = client.upload(
        iter(documents) if kind == "documents" else str(path),
        compress=kind != "plain",
        progress=lambda done, size: sent.append((done, size)),
    )
    assert upload.accepted == 30
    assert sent[0][0] == 0
    assert sent[-1][0] == sent[-1][1] > 0
    if kind == "plain":
        assert sent[-1][1] == len(lines)
    job = client.wait_for_job(
        upload.id, timeout=TIMEOUT_S, progress=lambda item: seen.append(item.progress)
    )
    assert (job.state, job.indexed, job.failed, job.errors) == ("done", 30, 0, [])
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    for name in names:
        client.delete(name)


def test_lines_that_are_no_documents_are_in_the_job(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"id": "a"}\n')
    job = client.wait_for_job(client.upload(path).id)
    assert job.failed == 1
    assert [(error.line, error.pointer) for error in job.errors] == [(1, "#/text")]
    assert client.job(job.id) == job
    assert next(iter(client.jobs())).id == job.id
    surrogate = client.wait_for_job(client.upload([Document("s", "a \ud800 b")]).id)
    assert surrogate.failed == 1
    with pytest.raises(ConflictError):
        client.cancel_job(job.id)
    with pytest.raises(FileNotFoundError):
        client.upload(tmp_path / "gone.jsonl")
    with pytest.raises(NotFoundError):
        client.wait_for_job("none")


def test_waiting_ends_with_its_time_or_with_the_job(client: Any) -> None:
    many = (Document(f"w{n}", f"{n} " + "Long rivers run to the sea. " * 40) for n in range(2_000))
    upload = client.upload(many)
    with pytest.raises(DeadlineExceededError, match=upload.id):
        client.wait_for_job(upload.id, timeout=0)
    assert client.cancel_job(upload.id).state == "cancelled"
    with pytest.raises(JobFailedError) as caught:
        client.wait_for_job(upload.id)
    assert caught.value.job.id == upload.id
    for document in list(client.documents()):
        if document.id not in TEXTS:
            client.delete(document.id)


def test_the_service_describes_itself(client: Any) -> None:
    assert client.is_alive()
    assert client.ready().status in ("ready", "degraded")
    assert client.wait_until_ready(timeout=120).documents >= len(TEXTS)
    version = client.version()
    assert version.checkpoint.dimension > 0
    assert version.limits["max_top_k"] == 1000
    assert "longmatch_requests_total" in client.metrics()
    assert client.problem("/problems/overloaded").status == 503
    assert client.problem("overloaded").type == "/problems/overloaded"


def test_an_error_has_what_the_server_says(client: Any) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        client.index([Document("a", ""), Document("", "text")])
    error = caught.value
    assert (error.status, error.type) == (422, "/problems/invalid-input")
    assert error.title == "A field is invalid"
    assert [item.pointer for item in error.errors] == ["#/documents/1/id"]
    assert error.request_id
    assert "#/documents/1/id" in str(error)


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> Iterator[tuple[str, dict[Scope, str]]]:
    """Return the URL of a server with keys, and a key of each scope."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "data").mkdir()
    scopes: tuple[Scope, ...] = ("read", "write")
    tokens = {scope: add_key(folder / "data", scope) for scope in scopes}
    with serving(folder, folder / "data", tiny_checkpoint, threads=1) as running:
        yield running.url, tokens


def test_keys(make_longmatch: Callable[..., Any], guarded: tuple[str, dict[Scope, str]]) -> None:
    url, tokens = guarded
    with pytest.raises(AuthenticationError):
        make_longmatch(url).match("a")
    reader = make_longmatch(url, api_key=tokens["read"])
    assert reader.match("a").matches == []
    with pytest.raises(ForbiddenError, match="write"):
        reader.index([DOCUMENTS[0]])
    writer = make_longmatch(f"{url}/", api_key=tokens["write"])
    writer.index([DOCUMENTS[0]])
    writer.delete(DOCUMENTS[0].id)


def test_an_upload_that_is_refused_while_it_is_sent(
    make_longmatch: Callable[..., Any], guarded: tuple[str, dict[Scope, str]], tmp_path: Path
) -> None:
    """The server closes the connection long before the last byte; its answer must arrive."""
    url, tokens = guarded
    path = tmp_path / "large.jsonl"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    with pytest.raises(AuthenticationError):
        make_longmatch(url).upload(path, compress=False)
    with pytest.raises(ForbiddenError):
        make_longmatch(url, api_key=tokens["read"]).upload(path, compress=False)


def test_a_client_of_a_collection_meets_its_documents_alone(client: Any) -> None:
    assert client.create_collection("papers").state == "open"
    papers = client.in_collection("papers")
    papers.index([Document("ice", "Ice carves valleys over thousands of years.")])
    assert [document.id for document in papers.documents()] == ["ice"]
    assert ids(papers.match("Ice carves valleys.")) == ["ice"]
    assert len(papers.embed(["Ice."])) == 1
    assert papers.version().version == client.version().version  # of the service, not below it
    for of_default in (client, papers.in_collection(None)):
        assert "ice" not in {document.id for document in of_default.documents()} >= set(TEXTS)
    assert [collection.name for collection in client.collections()] == ["default", "papers"]
    assert client.collection_state("papers").documents == 1
    papers.index([Document("snow", "Ice carves valleys over thousands of years.")])
    given = papers.give_feedback(Stored("ice"), "snow", 1)
    assert [item.id for item in papers.feedback()] == [given.id]
    assert list(client.feedback()) == []
    [pair] = papers.pairs(min_score=0.0)
    assert (pair.left, pair.right) == ("ice", "snow")
    with pytest.raises(InvalidRequestError):
        list(papers.pairs())
    client.delete_collection("papers")
    with pytest.raises(NotFoundError):
        client.collection_state("papers")
    with pytest.raises(NotFoundError):
        papers.match("Ice.")


README = Path(__file__).parents[2] / "clients/python/README.md"


def test_the_examples_work(
    serve: Any, tiny_checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) == 5
    printed = []
    with serve(tmp_path / "data", tiny_checkpoint) as server:
        names = {"url": server.url}
        for example in examples:
            exec(compile(example, README, "exec"), names)
            printed.append(capsys.readouterr().out)
    first, second, retrieved, third, fourth = printed
    assert first.startswith("bees Bees {'year': 2021} ")
    assert "tokens were read" in first
    assert "100 indexed, 0 failed []" in second
    assert "100% indexed" in second
    assert retrieved.startswith("notes/")
    assert "notes/new" in third
    assert fourth.startswith("422 /problems/invalid-input ")
    assert "#/text: the text is empty" in fourth
