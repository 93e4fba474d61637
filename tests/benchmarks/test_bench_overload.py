"""The overload programme, short, on a real server: what holds on any machine."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.bench_load import TextSource
from benchmarks.bench_overload import arrivals, checks, measure, memory_of, summarise
from benchmarks.open_loop import Answer
from benchmarks.server_process import serving
from index.document import Document

WORDS = ("ants", "bees", "rivers", "tax", "law", "winter", "hive", "queen", "nectar", "ice")
DOCUMENTS = [
    Document(id=str(number), text=" ".join(WORDS[number % 7 :] * 40) + ".") for number in range(6)
]


def test_a_drowned_server_refuses_in_order_and_comes_back(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with (
        serving(DOCUMENTS, tiny_checkpoint, tmp_path) as server,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients,
    ):
        results = measure(server.port, TextSource(DOCUMENTS), 3.0, 10, clients)
        assert server.get("/readyz")["status"] == "ready"
    held = results["checks"]
    assert held["before it, all is answered"]
    assert held["only 200 and 503"], results["statuses"]
    assert held["every refusal says when to come back"]
    assert held["normal within 5 s"]


def test_requests_come_at_the_rate_that_was_asked_for() -> None:
    plan = arrivals(TextSource(DOCUMENTS), 60.0, 100_000)
    tokens = sum(asked.words for asked in plan) * 1.4
    assert tokens == pytest.approx(6_000_000, rel=0.25)
    assert [asked.moment for asked in plan] == sorted(asked.moment for asked in plan)
    assert plan[-1].moment < 60


def test_each_check_can_fail() -> None:
    before = [Answer(100, 200, 0.1, tokens=140)] * 20
    good = [Answer(100, 200, 0.19, 140), Answer(100, 503, 0.04, retry_after=1)]
    assert all(checks(before, good, 0.1, 1.0).values())
    for answers, recovery in (
        ([*good, Answer(100, 500, 0.1)], 1.0),
        ([*good, Answer(100, 503, 0.06, retry_after=1)], 1.0),
        ([*good, Answer(100, 200, 0.21, 140)], 1.0),
        ([*good, Answer(100, 503, 0.04)], 1.0),
        (good, 6.0),
    ):
        assert list(checks(before, answers, 0.1, recovery).values()).count(False) == 1


def test_the_summary_keeps_short_and_long_apart() -> None:
    answers = [Answer(60, 200, 0.1, 80), Answer(9_000, 200, 2.0, 12_000), Answer(9, 503, 0.01)]
    rows = summarise(answers[:1], answers)["latency_seconds"]
    assert rows["before: short"]["answers"] == 1
    assert rows["during: short"]["p99"] == 0.1
    assert rows["during: long"]["p99"] == 2.0
    assert rows["during: refused"]["p99"] == 0.01


def test_memory_is_compared_with_what_it_was_before() -> None:
    curve = [(0.0, 50.0), (4.0, 100.0), (6.0, 100.0), (10.0, 105.0), (14.0, 112.0), (30.0, 300.0)]
    assert memory_of(curve, 8.0, 20.0)["memory_growth"] == 1.12
