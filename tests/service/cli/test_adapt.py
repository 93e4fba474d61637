"""`longmatch index --adapt` and all that opens the data directory afterwards."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from encoder.adapter import vector_space
from encoder.checkpoint import load_checkpoint
from index.adapt import ADAPTER_FILE, read_corpus_adapter
from index.directory.data_directory import open_data_directory
from index.embed import read_embedded_corpus
from index.search.calibrate import ScoreCalibrator
from index.search.corpus_calibration import CALIBRATION_FILE
from index.search.records import Bounds
from service.app import create_app
from service.match.logic import validate_bounds
from service.settings import Settings
from service.startup import close_engine, open_engine
from tests.kit.command import Answer, Run

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


def test_index_match_calibrate_and_serve(
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
    assert all(0 < match["false_positive_rate"] <= 1 for match in matched)
    engine = open_engine(Settings(encoder=tiny_checkpoint, data=tmp_path / "data"))
    client = TestClient(create_app(engine.settings, engine), base_url="http://localhost")
    try:
        described = client.get("/version").json()
        document = {"id": "new", "text": "There is basalt and granite in it."}
        assert client.post("/index", json={"documents": [document]}).status_code == 200
        asked = ({"text": "granite, basalt", "top_k": 5}, {"id": "new", "top_k": 5})
        answers = [client.post("/match", json=body).json()["matches"] for body in asked]
    finally:
        close_engine(engine)
    assert described["adapter"] == {
        "digest": adapter.digest[:12],
        "documents": 120,
        "dimension": 32 + adapter.width,
    }
    assert described["checkpoint"]["dimension"] == 32
    assert described["calibration"]["kinds"]["adapted"]["documents"] == 120
    for found in answers:
        assert len(found) == 5
        assert {int(match["id"][1:]) % 3 for match in found if match["id"] != "new"} == {1}
        assert all(match["false_positive_rate"] is not None for match in found)


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
    assert "made with the encoder" in answer.err


def test_evaluate_measures_adapted_vectors(longmatch: Run, corpus: Path, tmp_path: Path) -> None:
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


def test_a_refusal_names_adapted_scores() -> None:
    judge = ScoreCalibrator(None, None, None, adapted=True)
    (refused,) = validate_bounds(judge, "semantic", Bounds(min_probability=0.5))
    assert "adapted scores have" in refused.detail


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
        stored = [directory.store.vectors([found[name].vector_id])[1][0] for name in embedded.ids]
    np.testing.assert_allclose(embedded.vectors, stored, atol=1e-6)
