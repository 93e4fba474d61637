"""The overload benchmark, short, on a real server: what holds on any machine."""

import json
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.server.load import TextSource
from benchmarks.server.open_loop import PIECE_WORDS, Answer, DistinctTexts
from benchmarks.server.overload import SLOW_CLIENTS, arrivals, checks, measure, memory_of, summarise
from benchmarks.server.server import counted_between, serving
from index.document import Document

WORDS = ("ants", "bees", "rivers", "tax", "law", "winter", "hive", "queen", "nectar", "ice")
DOCUMENTS = [
    Document(id=str(number), text=" ".join(WORDS[number % 7 :] * 40) + ".") for number in range(6)
]


@pytest.mark.slow
def test_an_overloaded_server_rejects_in_order_and_recovers(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    with (
        serving(DOCUMENTS, tiny_checkpoint, tmp_path) as server,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients,
    ):
        results = measure(server, DistinctTexts(DOCUMENTS), 3.0, 10, clients)
        assert server.get("/readyz")["status"] == "ready"
    counted = results["server"]
    assert 0 < counted["refused_before_routing"] <= results["statuses"]["503"] + SLOW_CLIENTS
    assert 0 < counted["share_within_milliseconds"]["50"] <= 1
    assert results["clients"]["seconds_late"]["p99"] >= 0
    held = results["checks"]
    assert held["before the overload, all requests succeed"]
    assert held["only 200 and 503"], results["statuses"]
    assert held["every rejection has Retry-After"]
    assert held["normal within 5 s"]


def test_requests_come_at_the_planned_rate() -> None:
    plan = arrivals(TextSource(DOCUMENTS), 60.0, 100_000)
    tokens = sum(request.words for request in plan) * 1.4
    assert all(json.loads(request.body)["text"] for request in plan[:5])
    assert tokens == pytest.approx(6_000_000, rel=0.25)
    assert [request.moment for request in plan] == sorted(request.moment for request in plan)
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


def test_texts_of_one_corpus_have_no_passage_in_common() -> None:
    words = [f"w{number} " for number in range(30_000)]
    source = DistinctTexts([Document(id="all", text="".join(words))])
    chance = random.Random(1)
    samples = [source.sample(chance) for _ in range(20)]
    passages: set[str] = set()
    for count, text in samples:
        words = text.split()
        assert len(words) == count
        cuts = [
            " ".join(words[start : start + PIECE_WORDS[1] + 1])
            for start in range(len(words) - PIECE_WORDS[1])
        ]
        assert passages.isdisjoint(cuts)
        passages.update(cuts)


def test_rejections_are_counted_between_two_scrapes() -> None:
    duration = "longmatch_request_duration_seconds"
    refused = 'longmatch_requests_total{code="503",method="POST",route="/match"}'
    first = {refused: 10.0, "longmatch_block_cache_hits_total": 4.0}
    second = {
        refused: 110.0,
        f'{duration}_bucket{{le="0.005",route="unmatched"}}': 50.0,
        f'{duration}_bucket{{le="0.05",route="unmatched"}}': 99.0,
        "longmatch_block_cache_hits_total": 5.0,
        "longmatch_block_cache_misses_total": 9.0,
    }
    counted = counted_between(first, second)
    assert counted["refused_before_routing"] == 100
    assert counted["share_within_milliseconds"] == {"5": 0.5, "10": 0, "25": 0, "50": 0.99}
    assert counted["blocks_remembered_share"] == 0.1
