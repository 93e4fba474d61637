"""The kills of a cluster; `python -m benchmarks.reliability.cluster_kills` runs it long."""

import json
from dataclasses import asdict
from pathlib import Path

import psycopg
import pytest

from benchmarks.common import RESULTS
from benchmarks.reliability.cluster_kills import (
    BENCHMARK,
    KINDS,
    ClusterKillCheck,
    Tally,
    stored,
    table,
)
from benchmarks.reliability.cluster_parts import open_cluster
from benchmarks.reliability.cluster_writers import Known
from tests.tools.tiers import Tier


def test_a_request_without_an_answer_was_done_or_was_not() -> None:
    known = Known({"a": "one"}, {"a": ["two", None], "b": ["three"]})
    assert all(known.allows("a", text) for text in ("one", "two", None))
    assert known.allows("b", None)
    assert known.allows("b", "three")
    assert not known.allows("a", "three")
    assert not known.allows("c", "one")
    assert not Known({"a": "one"}).allows("a", None)


def test_results_are_laid_out() -> None:
    kinds = {kind: asdict(Tally(kills=6, acknowledged=7_001, commands=8)) for kind in KINDS}
    lines = table({"results": {"kinds": kinds}}).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == list(KINDS)
    assert all("7001" in line.replace(",", "") for line in lines[2:])
    for path in RESULTS.glob(f"{BENCHMARK}-*.json"):
        record = json.loads(path.read_text())
        tallies = {kind: Tally(**one) for kind, one in record["results"]["kinds"].items()}
        assert set(tallies) == set(KINDS)
        assert sum(one.kills for one in tallies.values()) == record["settings"]["kills"]
        assert all((one.lost, one.back, one.wrong) == (0, 0, []) for one in tallies.values())


@pytest.mark.slow
def test_one_kill_of_each_kind_loses_nothing(
    tmp_path: Path, tiny_checkpoint: Path, tier: Tier
) -> None:
    with open_cluster(tmp_path, tiny_checkpoint) as cluster:
        check = ClusterKillCheck(cluster, tier.seed)
        for number, kind in enumerate(KINDS):
            while not check.kill_once(kind, number):
                pass
            tally = check.tallies[kind]
            assert (tally.kills, tally.lost, tally.back, tally.wrong) == (1, 0, 0, [])
            assert tally.acknowledged > 10
        kept = stored(cluster.database.url)
        with psycopg.connect(cluster.database.url) as connection:  # behind everyone's back
            connection.execute("DELETE FROM longmatch.documents WHERE id = 'indexed7'")
        found = Tally()
        check._compare(found, {name: text for name, text in kept.items() if "indexed" in name})
        assert found.lost == 1
        assert len(found.wrong) >= 2  # both servers differ from the database
