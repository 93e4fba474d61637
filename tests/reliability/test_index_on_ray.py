"""`longmatch index --on ray` with a real Ray on this machine, and what kills leave of it."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from index.build import BATCH_DOCUMENTS
from tests.kit.command import Run
from tests.kit.forking import Forked
from tests.kit.process_fixtures import COMMAND, environment, free_port
from tests.kit.ray_processes import encoders
from tests.kit.waiting import wait_until

RunProcess = Callable[..., subprocess.CompletedProcess[str]]
Start = Callable[..., Forked]
# What differs from run to run: times, a random name, checksums of times, and a log of free space.
PASSING = {
    "documents": {"indexed_at", "checksum"},
    "meta": {"created", "identity"},
    "term_statistics": {"identity"},
}


# A Ray that runs, and its drivers, on 127.0.0.1: Ray takes another address of the machine else.
LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def write_corpus(path: Path, documents: int, words: range = range(8, 20)) -> list[str]:
    """Write documents of random words, some with a title; return what is wrong with the file."""
    chance = random.Random(5)
    known = [f"w{number}ord" for number in range(600)]
    with path.open("w", encoding="utf-8") as file:
        for number in range(documents):
            text = " ".join(chance.choices(known, k=chance.choice(words)))
            title = f"{known[number % 600]} {known[number * 7 % 600]}" if number % 9 == 0 else ""
            record = {"id": f"d{number}", "text": f"{text}.", "title": title, "year": number % 5}
            file.write(json.dumps(record) + "\n")
        file.write("no document\n" + json.dumps({"id": "blank", "text": "\u200b"}) + "\n")
    return [f"{path.name}:{documents + 1}", "document blank"]


def tables(data: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that a store holds and that does not differ from run to run."""
    with closing(sqlite3.connect(data / "store.sqlite3")) as connection:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [row[0] for row in connection.execute(named)]
        found = {}
        for name in names:
            about = connection.execute(f"PRAGMA table_info({name})")
            columns = [row[1] for row in about if row[1] not in PASSING.get(name, ())]
            found[name] = sorted(connection.execute(f"SELECT {', '.join(columns)} FROM {name}"))
        return found


def stored(data: Path) -> int:
    """Return how many documents are committed."""
    if not (data / "store.sqlite3").exists():
        return 0
    with closing(sqlite3.connect(data / "store.sqlite3", timeout=60)) as connection:
        if not connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'documents'"
        ).fetchall():
            return 0
        count: int = connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        return count


def skipped(data: Path) -> list[str]:
    lines = (data / "skipped.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["where"] for line in lines]


def test_the_store_and_its_answers_are_those_of_one_process(
    longmatch: Run, longmatch_process: RunProcess, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    wrong = write_corpus(corpus, BATCH_DOCUMENTS + 40)
    here, there = tmp_path / "here", tmp_path / "there"
    assert longmatch("index", corpus, "--data", here).status == 1  # input was skipped
    done = longmatch_process(
        *("index", corpus, "--data", there, "--on", "ray", "--actors", 2),
        checkpoint=tiny_checkpoint,
    )
    assert done.returncode == 1, done.stderr
    assert f"{BATCH_DOCUMENTS + 40} encoded" in done.stderr
    assert "Traceback" not in done.stderr
    assert skipped(there) == skipped(here) == wrong
    assert tables(there) == tables(here)
    query = tmp_path / "query.txt"
    query.write_text("w5ord w70ord w81ord w99ord w400ord. " * 3)
    answers = {longmatch("match", query, "--data", data, "--json").out for data in (here, there)}
    assert len(answers) == 1
    assert len(json.loads(answers.pop())["matches"]) == 10


def runs(pid: int) -> bool:
    """Return whether a process runs, and is not only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object], job: Forked) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert job.poll() is None, "the job has ended"
        assert time.monotonic() < deadline, "nothing happens"
        time.sleep(0.05)


@pytest.mark.slow
def test_killed_encoders_and_a_killed_driver_lose_nothing(
    longmatch_process: RunProcess, start_longmatch: Start, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, 4 * BATCH_DOCUMENTS)
    here, there = tmp_path / "here", tmp_path / "there"
    longmatch_process("index", corpus, "--data", here, checkpoint=tiny_checkpoint)
    command = ("index", corpus, "--data", there, "--on", "ray", "--actors", 2)
    job = start_longmatch(*command, checkpoint=tiny_checkpoint)
    wait_for(lambda: stored(there), job)
    killed = encoders(job.pid)
    assert len(killed) == 2
    for process in killed:
        os.kill(process, signal.SIGKILL)
    committed = stored(there)
    wait_for(lambda: stored(there) > committed, job)  # others go on with their work
    working = set(encoders(job.pid)) - set(killed)
    job.kill()
    job.wait()
    kept = stored(there)
    assert 0 < kept < 4 * BATCH_DOCUMENTS
    wait_until(lambda: not any(map(runs, working)))  # they end with their driver
    again = longmatch_process(*command, checkpoint=tiny_checkpoint)
    assert again.returncode == 1, again.stderr
    assert f"{4 * BATCH_DOCUMENTS - kept} encoded" in again.stderr
    assert f"{kept} unchanged" in again.stderr
    assert tables(there) == tables(here)


@pytest.fixture(scope="module")
def ray_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Ray on 127.0.0.1 that runs, of 4 CPUs."""
    port = free_port()
    folder = tmp_path_factory.mktemp("ray")
    with (folder / "log").open("wb") as log:
        code = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
        options = ("--head", "--block", f"--port={port}", "--num-cpus=4")
        options += ("--include-dashboard=false", f"--ray-client-server-port={free_port()}")
        head = subprocess.Popen(
            [sys.executable, "-c", code, "start", *options],
            env={**os.environ, **LOOPBACK},
            stdout=log,
            stderr=log,
        )
        address = f"127.0.0.1:{port}"
        try:
            said = (folder / "log").read_text
            wait_until(lambda: head.poll() is not None or "Ray runtime started" in said())
            assert head.poll() is None, said()
            yield address
        finally:
            head.terminate()
            head.wait(120)


def on_cluster(
    checkpoint: Path, address: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    """Run `longmatch index` on a Ray that runs, which RAY_ADDRESS names."""
    return subprocess.run(
        [*COMMAND, "index", *map(str, arguments), "--on", "ray"],
        env={**environment(checkpoint), **LOOPBACK, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        check=False,
    )


def one_error(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error that a command ended with, the last line that it printed."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    return last


@pytest.mark.slow
def test_a_ray_that_runs_encodes_with_a_share(
    longmatch_process: RunProcess, ray_address: str, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, 60, range(200, 300))
    options = ("--reading-share", 0.5)
    here, there = tmp_path / "here", tmp_path / "there"
    done = longmatch_process("index", corpus, "--data", here, *options, checkpoint=tiny_checkpoint)
    assert done.returncode == 1
    done = on_cluster(tiny_checkpoint, ray_address, corpus, "--data", there, *options)
    assert done.returncode == 1, done.stderr
    assert f"starting encoders at {ray_address}" in done.stderr
    assert tables(there) == tables(here)


@pytest.mark.slow
def test_an_encoder_that_cannot_be_opened_is_one_error(
    ray_address: str, copy_checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus, 3)
    damaged = copy_checkpoint("smith")
    graph = next((damaged / "int8").glob("block*.onnx"))
    graph.write_bytes(graph.read_bytes()[:-1])
    done = on_cluster(damaged, ray_address, corpus, "--data", tmp_path / "data")
    assert "encoding on Ray: an encoder on " in one_error(done)
    assert graph.name in one_error(done)
    assert not (tmp_path / "data").exists()  # refused before the work


@pytest.mark.slow
def test_an_encoder_that_keeps_ending_is_one_error(tiny_checkpoint: Path, tmp_path: Path) -> None:
    corpus, log = tmp_path / "corpus.jsonl", tmp_path / "log"
    write_corpus(corpus, 40)
    command = ["index", str(corpus), "--data", str(tmp_path / "data"), "--on", "ray"]
    with log.open("wb") as output:
        job = subprocess.Popen(
            [*COMMAND, *command], env=environment(tiny_checkpoint), stderr=output
        )
    deadline = time.monotonic() + 300
    while job.poll() is None:
        assert time.monotonic() < deadline
        for encoder in encoders(job.pid, b"EncodingActor.describe"):
            with suppress(ProcessLookupError):
                os.kill(encoder, signal.SIGKILL)
        time.sleep(0.01)
    last = log.read_text().splitlines()[-1]
    assert job.returncode == 2
    assert "error: encoding on Ray: opening an encoder: " in last
