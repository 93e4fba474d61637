"""`longmatch index --adapt` and all that opens the data directory afterwards."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest

from encoder.adapter import vector_space
from encoder.checkpoint import load_checkpoint
from index.adapt import ADAPTER_FILE, read_corpus_adapter
from index.directory.data_directory import open_data_directory
from index.embed import read_embedded_corpus
from index.search.calibrator import ScoreCalibrator, score_kind
from index.search.corpus_calibration import CALIBRATION_FILE
from index.search.records import Bounds
from service.api.app import create_app
from service.engine import Engine
from service.matching.match import validate_bounds
from service.settings import Settings
from service.startup import close_engine, open_engine
from tests.tools.command import Answer, Run

FILLERS = "long short early late open closed near far high low warm cold"
WORDS = ("violin orchestra sonata", "granite basalt lava", "harbour sailor anchor")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Document n is of topic n % 3: two of its words, among many that all documents may have."""
    random = np.random.default_rng(0)
    path = tmp_path / "corpus.jsonl"
    lines = []
    for n in range(120):
        words = WORDS[n % 3].split()
        others = " ".join(random.choice(FILLERS.split(), 12))
        text = f"The text has {others}, {words[n % 2]} and {words[2 - n % 2]} in part {n}."
        lines.append(json.dumps({"id": f"d{n}", "text": text}) + "\n")
    path.write_text("".join(lines))
    return path


def topics(answer: Answer) -> list[int]:
    """The topics of the matches, best first."""
    return [int(found["id"][1:]) % 3 for found in json.loads(answer.out)["matches"]]


def test_index_match_and_calibrate(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    answer = longmatch("index", corpus, "--adapt")
    assert answer.status == 0
    assert f"{ADAPTER_FILE}: fitted to 120 documents" in answer.err
    assert "120 documents; 120 encoded" in answer.err
    query = tmp_path / "query.txt"
    query.write_text("granite and lava")
    for mode in ("semantic", "hybrid"):
        found = longmatch("match", query, "--top-k", 5, "--mode", mode, "--json")
        assert found.status == 0
        assert topics(found) == [1] * 5
    again = longmatch("index", corpus)  # without the flag: it has an adapter and uses it
    assert again.status == 0
    assert "0 encoded (0 tokens, 0 left out), 120 unchanged" in again.err
    kept = longmatch("index", corpus, "--adapt")
    assert kept.status == 0
    assert "exists already and is kept" in kept.err
    assert "0 encoded" in kept.err
    assert longmatch("calibrate").status == 0
    calibration = json.loads((tmp_path / "data" / CALIBRATION_FILE).read_text())
    assert set(calibration["kinds"]) == {"adapted", "lexical", "adapted hybrid"}
    adapter = read_corpus_adapter(tmp_path / "data", load_checkpoint(tiny_checkpoint))
    assert adapter is not None
    assert calibration["fingerprint"] == adapter.fingerprint
    matched = json.loads(longmatch("match", query, "--json").out)["matches"]
    assert all(0 < one["false_positive_rate"] <= 1 for one in matched)


def test_a_directory_that_was_made_without_is_refused(
    longmatch: Run, corpus: Path, tmp_path: Path
) -> None:
    longmatch("index", corpus)
    answer = longmatch("index", corpus, "--adapt")
    assert answer.status == 2
    assert "made without --adapt" in answer.err
    assert "new data directory" in answer.err
    assert not (tmp_path / "data" / ADAPTER_FILE).exists()
    assert longmatch("index", corpus).status == 0


def test_a_corpus_of_one_document(longmatch: Run, tmp_path: Path) -> None:
    single = tmp_path / "single.txt"
    single.write_text("Granite and lava.")
    answer = longmatch("index", single, "--adapt")
    assert answer.status == 2
    assert "has 1 readable documents, and it takes 5" in answer.err
    assert longmatch("index", single).status == 0  # nothing stands in the way of the other way


def test_a_damaged_adapter_stops_every_command(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    longmatch("index", corpus, "--adapt")
    path = tmp_path / "data" / ADAPTER_FILE
    content = path.read_bytes()
    path.write_bytes(content[:1000] + b"?" + content[1001:])
    query = tmp_path / "query.txt"
    query.write_text("granite and lava")
    for command in (("index", corpus), ("index", corpus, "--adapt"), ("match", query)):
        answer = longmatch(*command)
        assert answer.status == 2
        assert "adapter.npz: is damaged" in answer.err
    assert longmatch("calibrate").status == 2
    path.unlink()
    answer = longmatch("match", query)
    assert answer.status == 2
    assert "made with checkpoint" in answer.err


def test_evaluate_measures_the_adapted_vectors_beside(
    longmatch: Run, corpus: Path, tmp_path: Path
) -> None:
    qrels = tmp_path / "qrels.tsv"
    names = range(0, 120, 20)
    lines = [f"d{a}\t0\td{b}\t1\n" for a in names for b in range(120) if a != b and a % 3 == b % 3]
    qrels.write_text("".join(lines))
    answer = longmatch("evaluate", corpus, qrels, "--mode", "hybrid", "--adapt", "--json")
    assert answer.status == 0, answer.err
    systems = json.loads(answer.out)["retrieval"]["systems"]
    own = {"vector", "semantic", "lexical", "unaligned hybrid", "hybrid"}
    assert set(systems) == {*own, "adapted", "adapted semantic", "adapted hybrid"}
    values = {name: system["nDCG@10"]["value"] for name, system in systems.items()}
    assert values["adapted"] > values["vector"] + 0.2
    without = longmatch("evaluate", corpus, qrels, "--json")
    assert set(json.loads(without.out)["retrieval"]["systems"]) == own


@pytest.fixture
def engine(longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path) -> Iterator[Engine]:
    """An engine over an adapted and calibrated data directory."""
    longmatch("index", corpus, "--adapt")
    longmatch("calibrate")
    opened = open_engine(Settings(checkpoint=tiny_checkpoint, data=tmp_path / "data"))
    yield opened
    close_engine(opened)


def test_a_server_over_it(engine: Engine) -> None:
    async def talk() -> tuple[httpx.Response, ...]:
        transport = httpx.ASGITransport(create_app(engine.settings, engine))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            version = await client.get("/version")
            document = {"id": "new", "text": "There is basalt and granite in it."}
            stored = await client.post("/index", json={"documents": [document]})
            text = await client.post("/match", json={"text": "granite, basalt", "top_k": 5})
            itself = await client.post("/match", json={"id": "new", "top_k": 5})
            return version, stored, text, itself

    version, stored, text, itself = asyncio.run(talk())
    opened = engine.default.adapter
    assert opened is not None
    adapter = opened.adapter
    described = version.json()
    assert described["adapter"] == {
        "digest": adapter.digest[:12],
        "documents": 120,
        "dimension": 32 + adapter.width,
    }
    assert described["checkpoint"]["dimension"] == 32
    assert described["calibration"]["kinds"]["adapted"]["documents"] == 120
    assert stored.status_code == 200
    for answer in (text, itself):
        found = answer.json()["matches"]
        assert len(found) == 5
        assert {int(one["id"][1:]) % 3 for one in found if one["id"] != "new"} == {1}
        assert all(one["false_positive_rate"] is not None for one in found)


def test_kinds_of_scores() -> None:
    modes = ("semantic", "lexical", "hybrid")
    assert [score_kind(mode, adapted=False) for mode in modes] == list(modes)
    kinds = [score_kind(mode, adapted=True) for mode in modes]
    assert kinds == ["adapted", "lexical", "adapted hybrid"]
    judge = ScoreCalibrator(None, None, None, adapted=True)
    (refused,) = validate_bounds(judge, "semantic", Bounds(min_probability=0.5))
    assert "of adapted scores" in refused.detail


def test_an_engine_over_a_plain_directory_has_no_adapter(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    longmatch("index", corpus)
    checkpoint = load_checkpoint(tiny_checkpoint)
    space = vector_space(checkpoint, None)
    open_data_directory(
        tmp_path / "data", fingerprint=space.fingerprint, dimension=space.dimension
    ).close()
    opened = open_engine(Settings(checkpoint=tiny_checkpoint, data=tmp_path / "data"))
    try:
        assert opened.encoder.adapter is None
        assert opened.encoder.fingerprint == checkpoint.fingerprint
    finally:
        close_engine(opened)


def test_embed_writes_the_vectors_of_the_index(
    longmatch: Run, corpus: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    output = tmp_path / "vectors.npz"
    assert longmatch("embed", corpus, "--adapt", "-o", output).status == 0
    embedded = read_embedded_corpus(output)
    longmatch("index", corpus, "--adapt")
    checkpoint = load_checkpoint(tiny_checkpoint)
    space = vector_space(checkpoint, read_corpus_adapter(tmp_path / "data", checkpoint))
    with closing(
        open_data_directory(
            tmp_path / "data", fingerprint=space.fingerprint, dimension=space.dimension
        )
    ) as directory:
        found = directory.store.find(embedded.ids)
        stored = [directory.store.vectors([found[one].vector_id])[1][0] for one in embedded.ids]
    np.testing.assert_allclose(embedded.vectors, stored, atol=1e-6)
