"""`longmatch doctor` finds every damage, and repairs what can be repaired."""

import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from index.directory.backup import STATE_FILE
from index.directory.data_directory import CALIBRATION_FILE, open_data_directory
from index.near_duplicates.families import FAMILIES_FILE
from service.feedback.store import FeedbackStore, JudgedQuery
from service.state import open_state
from service.uploads.files import UploadFile
from service.uploads.store import JobStore
from tests.kit.command import Run
from tests.service.cli.data.conftest import matches, vars_of


def sql(data: Path, *statements: str) -> None:
    """Damage a store."""
    with closing(sqlite3.connect(data / "store.sqlite3")) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_doctor_finds_nothing_in_what_is_sound(longmatch: Run, data: Path) -> None:
    answer = longmatch("doctor", data)
    assert (answer.status, "no problems found" in answer.err) == (0, True)
    directory = open_data_directory(data, **vars_of(data))
    try:
        assert longmatch("doctor", data).status == 0  # beside a server
        assert longmatch("doctor", data, "--repair").status == 0
    finally:
        directory.close()


ONE_VECTOR = "store.sqlite3: 1 document (d0) is damaged in vectors"
SOME_DAMAGES = ("a segment", "block vectors")
DAMAGES = {
    "a segment": (".segment: is damaged: delete it", None),
    "a lost vector": (ONE_VECTOR, "DELETE FROM vectors WHERE vector_id = 1"),
    "block vectors": (
        "2 documents (d0, d1) are damaged in vectors",
        "UPDATE block_vectors SET vectors = x'0000' WHERE vector_id < 3",
    ),
    "another value": (
        "1 documents do not match, vector id 3 first",
        "UPDATE metadata_values SET value = -2 WHERE vector_id = 3 AND field = '/sign'",
    ),
    "no vectors": (
        "24 documents (d0, d1, d2, d3, d4, …) are damaged in vectors",
        "DELETE FROM vectors",
    ),
}


@pytest.mark.parametrize(
    "damage",
    [
        name if name in SOME_DAMAGES else pytest.param(name, marks=pytest.mark.slow)
        for name in DAMAGES
    ],
)
def test_doctor_repairs_what_can_be_made_again(longmatch: Run, data: Path, damage: str) -> None:
    expected = matches(longmatch, data)
    said, statement = DAMAGES[damage]
    if statement is None:
        path = max(data.glob("lexical/*.segment"))  # the newest
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    else:
        sql(data, statement)
    answer = longmatch("doctor", data)
    assert answer.status == 1
    assert said in answer.err
    assert "use --repair to repair what can be repaired" in answer.err
    repaired = longmatch("doctor", data, "--repair")
    assert (repaired.status, "no problems found" in repaired.err) == (0, True), repaired.err
    assert longmatch("doctor", data).status == 0
    assert matches(longmatch, data) == expected


def test_a_damaged_snapshot_needs_no_doctor(longmatch: Run, data: Path) -> None:
    expected = matches(longmatch, data)
    path = data / "vectors.faiss"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert longmatch("doctor", data).status == 0
    assert matches(longmatch, data) == expected
    assert longmatch("delete", "unknown", "--data", data).status == 1  # it opens for writing
    assert matches(longmatch, data) == expected


def test_doctor_sets_aside_what_cannot_be_made_again(longmatch: Run, data: Path) -> None:
    every = matches(longmatch, data, "--top-k", 24)
    expected = [match["id"] for match in every if match["id"] not in ("d3", "d5")]
    sql(
        data,
        "UPDATE documents SET text = CAST(x'666f72676564ff' AS TEXT) WHERE id = 'd3'",
        "UPDATE documents SET metadata = '{' WHERE id = 'd5'",
        "UPDATE vectors SET vector = x'00' WHERE vector_id = 9",
        "DELETE FROM metadata_values WHERE vector_id = 11",
    )
    (data / FAMILIES_FILE).write_bytes(b"damaged")
    answer = longmatch("doctor", data)
    assert answer.status == 1
    assert "2 documents (d3, d5) are damaged in text" in answer.err
    assert "forged" not in answer.err
    answer = longmatch("doctor", data, "--repair")
    assert "no problems found" in answer.err
    kept = [json.loads(line) for line in (data / "damaged.jsonl").read_text().splitlines()]
    assert [record["id"] for record in kept] == ["d3", "d5"]
    assert kept[0]["text"] == "forged\ufffd"
    assert kept[0]["metadata"]["year"] == 1993
    found = matches(longmatch, data, "--top-k", 24)
    assert [match["id"] for match in found] == expected


def test_doctor_encodes_nothing_with_another_checkpoint(
    longmatch: Run, data: Path, tiny_terms: Path
) -> None:
    sql(data, "UPDATE vectors SET vector = x'00' WHERE vector_id = 9")
    before = (data / "store.sqlite3").read_bytes()
    answer = longmatch("doctor", data, "--repair", "--encoder", tiny_terms)
    assert (answer.status, "name that one with --encoder" in answer.err) == (1, True)
    assert (data / "store.sqlite3").read_bytes() == before


def test_doctor_deletes_a_calibration(longmatch: Run, data: Path) -> None:
    (data / CALIBRATION_FILE).write_text("{}")
    assert longmatch("doctor", data).status == 1
    assert longmatch("doctor", data, "--repair").status == 0
    assert not (data / CALIBRATION_FILE).exists()


@pytest.fixture
def waiting(data: Path) -> Path:
    """A data directory with an upload that waits."""
    (data / "uploads").mkdir()
    file = UploadFile(data / "uploads" / "a1.ndjson", max_bytes=1000, gzip=False)
    file.write(b'{"id": "new", "text": "Music."}\n')
    with closing(open_state(data)) as state:
        JobStore(state).insert(file.finish())
    return data


def test_doctor_examines_the_jobs(longmatch: Run, waiting: Path) -> None:
    assert longmatch("doctor", waiting).status == 0
    (waiting / "uploads" / "a1.ndjson").write_bytes(b'{"id": "other", "text": "Music."}\n')
    answer = longmatch("doctor", waiting)
    assert (answer.status, "job a1 has no upload, or another than was" in answer.err) == (1, True)
    assert longmatch("doctor", waiting, "--repair").status == 0
    with closing(open_state(waiting)) as state:
        job = JobStore(state).find("a1")
    assert (job.state, job.detail) == ("failed", "the upload is missing or damaged: send it again")


ALL, FORMAT, KIND = slice(None), slice(60, 64), slice(68, 72)  # of SQLite's header


@pytest.mark.parametrize(
    "damage",
    [
        slice(4096, 8192),
        "INSERT INTO standing (id, interest, created, scanned, bytes) "
        "VALUES (x'00', '{}', '', 0, 0)",
        *(
            pytest.param(damage, marks=pytest.mark.slow)
            for damage in (
                *(ALL, FORMAT, KIND, slice(16384, 24576)),
                "UPDATE judged SET text = x'00' WHERE number = 7",
            )
        ),
    ],
)
def test_doctor_sets_a_damaged_state_aside(
    longmatch: Run, waiting: Path, damage: slice | str
) -> None:
    with closing(open_state(waiting)) as state:
        feedback = FeedbackStore(state)
        for number in range(50):  # to fill the pages that are damaged
            feedback.put(JudgedQuery(text=random.Random(number).randbytes(500).hex()), "d1", 1)
    assert (waiting / STATE_FILE).stat().st_size > 24576
    assert longmatch("doctor", waiting).status == 0
    expected = matches(longmatch, waiting)
    path = waiting / STATE_FILE
    if isinstance(damage, str):
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(damage)
    else:
        content = bytearray(path.read_bytes())
        content[damage] = (b"\0" if damage == FORMAT else b"\xff") * len(content[damage])
        path.write_bytes(content)
    damaged = path.read_bytes()
    answer = longmatch("doctor", waiting)
    assert (answer.status, "state.sqlite3: is damaged (" in answer.err) == (1, True), answer.err
    assert "send these uploads again: a1" in answer.err
    assert longmatch("doctor", waiting, "--repair").status == 0
    kept = waiting / "state.damaged"
    assert (kept / path.name).read_bytes() == damaged
    assert json.loads((kept / "uploads" / "a1.ndjson").read_text())["id"] == "new"
    assert not path.exists()
    assert longmatch("doctor", waiting).status == 0
    assert matches(longmatch, waiting) == expected
