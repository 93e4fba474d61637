"""Does a cluster lose nothing when a part of it is killed at a random moment of writes?

    python -m benchmarks.reliability.cluster_kills --kills 30

Two clients put and delete documents through two servers, which share a PostgreSQL and a Milvus Lite
in a process of its own, while `longmatch index --on ray` replaces others with two encoders.
`kill -9` hits an encoder, that command, a server, every process of the PostgreSQL, or the Milvus.
What has ended is started again, as a supervisor would, and nothing else is done. Then database and
servers must hold the same documents, all that was acknowledged and none that was deleted, and find
them. The checkpoint is one of random weights, which the tests make. It ends with status 1 if
anything was wrong; a seed repeats the moments and the writes, as far as clocks allow.
"""

import json
import os
import random
import signal
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import psycopg
import typer

from benchmarks.common import SEED, commit, make_record, markdown_table, write_record
from benchmarks.reliability.cluster_parts import Cluster, IndexJob, Node, open_cluster, wait_for
from benchmarks.reliability.cluster_writers import Contents, Known, Writer, text_of
from tests.tools.checkpoints import CheckpointCache

BENCHMARK = "cluster-kills"
ENCODER, DRIVER, SERVER = "an encoder on Ray", "longmatch index --on ray", "a server"
DATABASE, MILVUS = "PostgreSQL", "Milvus Lite"
KINDS = (ENCODER, DRIVER, SERVER, DATABASE, MILVUS)
MODES = ("semantic", "lexical", "hybrid")
INDEXED = 600  # documents of the job on Ray: two batches
_WRITERS = 2
_PATIENCE = 180.0  # seconds until all must be well again
_LATEST = 5.0  # seconds from the start of the encoders to the moment
_AFTERWARDS = 0.5  # seconds of writes after the recovery
_SEARCHED = 4  # documents in each mode on each server


@dataclass(slots=True)
class Tally:
    """What the kills of one kind have done; `lost` and `back` must be 0, `wrong` empty."""

    kills: int = 0
    acknowledged: int = 0
    refused: int = 0
    lost: int = 0
    back: int = 0
    commands: int = 0
    worst_seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)


class ClusterKillCheck:
    """A cluster, what its clients know, and what was found to be wrong."""

    def __init__(self, cluster: Cluster, seed: int, indexed: int = INDEXED) -> None:
        self._cluster = cluster
        self._seed = seed
        self._random = random.Random(seed)
        self._known = [Known() for _ in range(_WRITERS)]
        self._indexed = [f"indexed{number}" for number in range(indexed)]
        self._deleted: Contents = {}
        self.tallies = {kind: Tally() for kind in KINDS}

    def kill_once(self, kind: str, number: int) -> bool:
        """Kill a part of the cluster at a random moment, let it come back, and compare.

        Returns:
            Whether something was killed: encoders may have ended before the moment came.
        """
        tally = self.tallies[kind]
        versions = {name: text_of(name, number) for name in self._indexed}
        job = self._cluster.index(self._write_corpus(versions))
        writers = [self._writer(place, number) for place in range(_WRITERS)]
        try:
            for writer in writers:
                writer.start()
            self._wait_for_the_moment(job)
            began = time.monotonic()
            killed = self._kill(kind, job)
            self._cluster.wait_until_well(_PATIENCE)
            tally.worst_seconds = max(tally.worst_seconds, time.monotonic() - began)
            job.finish()
            time.sleep(_AFTERWARDS)
        finally:
            for writer in writers:
                writer.stop()
            job.close()
        tally.kills += killed
        tally.commands += job.attempts
        self._cluster.wait_until_well(_PATIENCE)
        self._compare(tally, versions)
        return killed

    def _writer(self, place: int, number: int) -> Writer:
        servers = [lambda node=node: node.server for node in self._cluster.nodes]
        known = self._known[place]
        return Writer(
            servers[place:] + servers[:place], f"w{place}-", known, f"{self._seed} {number} {place}"
        )

    def _write_corpus(self, texts: Contents) -> Path:
        path = self._cluster.folder / "corpus.jsonl"
        lines = (json.dumps({"id": name, "text": text}) for name, text in texts.items())
        path.write_text("\n".join(lines) + "\n")
        return path

    def _wait_for_the_moment(self, job: IndexJob) -> None:
        """Wait until there are encoders, and then for a random time."""
        wait_for(lambda: None if job.encoders() or job.has_ended() else job, time.monotonic() + 120)
        time.sleep(self._random.uniform(0, _LATEST))

    def _kill(self, kind: str, job: IndexJob) -> bool:
        """Kill a part, and return whether it ran."""
        if kind == ENCODER:
            running = job.encoders()
            for one in running[:1]:
                os.kill(one, signal.SIGKILL)
            return bool(running)
        if kind == DRIVER:
            return job.kill()
        if kind == SERVER:
            self._random.choice(self._cluster.nodes).kill()
        elif kind == DATABASE:
            self._cluster.restart_database()
        else:
            self._cluster.restart_milvus()
        return True

    def _compare(self, tally: Tally, indexed: Contents) -> None:
        """Compare what the database and the servers hold with what is known, which it corrects."""
        found = stored(self._cluster.database.url)
        for number, node in enumerate(self._cluster.nodes):
            here = exported(node)
            if here != found:
                differing = {one for one in {*here, *found} if here.get(one) != found.get(one)}
                tally.wrong.append(f"server {number} differs in {sorted(differing)[:5]}")
            counted = node.server.request("GET", "/readyz")[1]["documents"]
            if counted != len(found):
                tally.wrong.append(f"server {number} counts {counted}, {len(found)} are stored")
        expected = dict(indexed)
        for known in self._known:
            names = known.texts.keys() | known.unknown.keys()
            for name in names:
                if known.allows(name, found.get(name)):
                    continue
                tally.lost += name in known.texts
                tally.back += name not in known.texts
            self._deleted |= {n: t for n, t in known.texts.items() if n not in found}
            known.texts = {name: found[name] for name in names if name in found}
            expected |= known.texts
            known.unknown.clear()
            tally.acknowledged += known.acknowledged
            tally.refused += known.refused
            tally.wrong += known.wrong
            known.acknowledged = known.refused = 0
            known.wrong.clear()
        tally.lost += sum(found.get(name) != text for name, text in indexed.items())
        tally.back += len(found.keys() - expected.keys())
        self._search(tally, found)

    def _search(self, tally: Tally, found: Contents) -> None:
        """Find some documents by their text, and others not."""
        some = self._random.sample(sorted(found), _SEARCHED)
        asked = [(name, found[name]) for name in some]
        asked += [(n, t) for n, t in self._deleted.items() if n not in found][:_SEARCHED]
        for number, node in enumerate(self._cluster.nodes):
            for mode in MODES:
                for name, text in asked:
                    status, answer = node.server.request(
                        "POST", "/match", {"text": text, "mode": mode}
                    )
                    ids = [one["id"] for one in answer.get("matches", ())]
                    right = ids[:1] == [name] if name in found else name not in ids
                    if status != 200 or not right:
                        tally.wrong.append(f"server {number}, {mode}: {name}: {status} {ids[:3]}")


def stored(url: str) -> Contents:
    """Return the text of each document in the database."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT id, text FROM longmatch.documents").fetchall()
    return {name: bytes(text).decode() for name, text in rows}


def exported(node: Node) -> Contents:
    """Return the text of each document as a server exports them."""
    request = urllib.request.Request(
        f"{node.server.url}/documents", headers={"Accept": "application/x-ndjson"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        documents = [json.loads(line) for line in answer]
    return {one["id"]: one["text"] for one in documents}


def run_cluster_kills(
    folder: Path, checkpoint: Path, kinds: Sequence[str], seed: int, indexed: int = INDEXED
) -> dict[str, Tally]:
    """Kill parts of a new cluster, one after the other, and return what was found by kind."""
    with open_cluster(folder, checkpoint) as cluster:
        check = ClusterKillCheck(cluster, seed, indexed)
        for number, kind in enumerate(kinds):
            while not check.kill_once(kind, number):
                pass
            typer.echo(f"{number + 1} {kind}: {check.tallies[kind]}", err=True)
    return {kind: one for kind, one in check.tallies.items() if one.kills}


def main(
    kills: Annotated[int, typer.Option(min=1, help="Of all kinds together.")] = 30,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.")] = SEED,
    write: Annotated[bool, typer.Option(help="Write the result to benchmarks/results.")] = True,
) -> None:
    """Kill parts of a cluster at random moments of writes."""
    source = commit()
    kinds = [KINDS[number % len(KINDS)] for number in range(kills)]
    random.Random(seed).shuffle(kinds)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "checkpoints").mkdir()
        checkpoint = CheckpointCache(place / "checkpoints").find("smith")
        tallies = run_cluster_kills(place, checkpoint, kinds, seed)
    settings = {"kills": kills, "seed": seed, "indexed_on_ray": INDEXED}
    results = {"kinds": {kind: asdict(one) for kind, one in tallies.items()}}
    record = make_record(BENCHMARK, source, settings, results)
    typer.echo(table(record))
    if write:
        write_record(record)
    wrong = [f"{kind}: {line}" for kind, one in tallies.items() for line in one.wrong]
    if wrong or any(one.lost or one.back for one in tallies.values()):
        typer.echo("\n".join(wrong), err=True)
        raise typer.Exit(1)


def table(record: dict[str, Any]) -> str:
    """Format a record: a row for each kind of kill."""
    head = ["killed", "kills", "writes acknowledged", "refused", "lost", "deleted ones back"]
    head += ["other problems", "commands of longmatch index", "s until all is well, at worst"]
    rows = [
        [
            *(kind, one["kills"], one["acknowledged"], one["refused"], one["lost"], one["back"]),
            *(len(one["wrong"]), one["commands"], f"{one['worst_seconds']:.1f}"),
        ]
        for kind, one in record["results"]["kinds"].items()
    ]
    return markdown_table(head, rows)


if __name__ == "__main__":
    typer.run(main)
