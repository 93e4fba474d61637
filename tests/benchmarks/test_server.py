"""The benchmarks of the real server, on few documents."""

import json
import random
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks.server import load, overload, search, starts, upload
from benchmarks.server.client import (
    NO_ANSWER,
    Answer,
    DistinctTexts,
    closed_loop,
    match_request,
)
from benchmarks.server.server import serving
from encoder.checkpoint import load_checkpoint
from index.document import Document

WORDS = ("ants", "bees", "rivers", "tax", "law", "winter", "hive", "queen", "nectar", "ice")
DOCUMENTS = [
    Document(id=str(number), text=" ".join(WORDS[number % 7 :] * 40) + ".") for number in range(6)
]


def answer(
    words: int, status: int, seconds: float, tokens: int = 0, retry_after: int = 0
) -> Answer:
    content = json.dumps({"receipt": {"tokens_read": tokens}}).encode() if tokens else b""
    return Answer(words, status, seconds, retry_after, content)


def test_latencies_are_kept_apart_by_size() -> None:
    answers = [
        answer(60, 200, 0.1, 80),
        answer(20_000, 200, 9.0, 25_000),
        answer(19_000, 503, 0.01, retry_after=7),
        answer(300, NO_ANSWER, 0.5),
    ]
    results = load.figures(answers, lasted=10.0)
    assert results["statuses"] == {"200": 2, "503": 1, "no answer": 1}
    assert results["tokens_per_second"] == 2508
    latencies = results["latency_seconds"]
    assert latencies["50 to 200 words"] == {"answers": 1, "p50": 0.1, "p95": 0.1, "p99": 0.1}
    assert latencies["201 to 1,000 words"] == {"answers": 0}
    assert latencies["5,001 to 20,000 words"]["p50"] == 9.0
    assert latencies["refused"]["p50"] == 0.01
    assert results["retry_after_seconds"]["p50"] == 7.0


def test_growth_compares_the_last_third_with_the_second() -> None:
    warm_up = [100.0, 150.0, 190.0]
    assert load.growth([*warm_up, 200.0, 200.0, 200.0, 200.0, 200.0, 200.0]) == 1.0
    grown = load.growth([*warm_up, 200.0, 210.0, 220.0, 230.0, 240.0, 250.0])
    assert grown == pytest.approx(240 / 210)
    with pytest.raises(ValueError, match="thirds"):
        load.growth([1.0, 2.0])


@pytest.mark.slow
def test_an_overloaded_server_rejects_and_recovers(tiny_checkpoint: Path, tmp_path: Path) -> None:
    texts = DistinctTexts(DOCUMENTS)
    with (
        serving(DOCUMENTS, tiny_checkpoint, tmp_path) as server,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as clients,
    ):
        chance = random.Random(1)
        requests = [match_request(*texts.sample(chance)) for _ in range(4)]
        answers = closed_loop(server.port, [iter(requests[:2]), iter(requests[2:])], 60.0)
        assert [answer.status for answer in answers] == [200] * 4
        assert all(answer.tokens > 0 for answer in answers)
        results = overload.measure(server, texts, 3.0, 10, clients)
        assert server.get("/readyz")["status"] == "ready"
    held = results["checks"]
    assert held["before the overload, all requests succeed"]
    assert held["only 200 and 503"], results["statuses"]
    assert held["every rejection has Retry-After"]


def test_each_check_of_an_overload_can_fail() -> None:
    before = [answer(100, 200, 0.1, 140)] * 20
    good = [answer(100, 200, 0.19, 140), answer(100, 503, 0.04, retry_after=1)]
    assert all(overload.checks(before, good, 0.1, 1.0).values())
    for answers, recovery in (
        ([*good, answer(100, 500, 0.1)], 1.0),
        ([*good, answer(100, 503, 0.06, retry_after=1)], 1.0),
        ([*good, answer(100, 200, 0.21, 140)], 1.0),
        ([*good, answer(100, 503, 0.04)], 1.0),
        (good, 6.0),
    ):
        assert list(overload.checks(before, answers, 0.1, recovery).values()).count(False) == 1
    rows = overload.figures(good[:1], [*good, answer(9_000, 200, 2.0, 12_000)])["latency_seconds"]
    assert rows["during: short"]["p99"] == 0.19
    assert rows["during: long"]["p99"] == 2.0
    assert rows["during: refused"]["p99"] == 0.04
    curve = [(0.0, 50.0), (4.0, 100.0), (6.0, 100.0), (10.0, 105.0), (14.0, 112.0), (30.0, 300.0)]
    assert overload.memory_of(curve, 8.0, 20.0)["memory_growth"] == 1.12


@pytest.mark.slow
def test_searches_starts_and_uploads_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    monkeypatch.setattr(search, "ROUNDS", 2)
    monkeypatch.setattr(search, "TEXTS", 3)
    monkeypatch.setattr(starts, "ROUNDS", 1)
    monkeypatch.setattr(upload, "ROUNDS", 1)
    monkeypatch.setattr("benchmarks.synthetic.articles.SAMPLED", 120)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    checkpoint = load_checkpoint(tiny_checkpoint)
    searches = search.measure(tmp_path, 120, checkpoint, [1, 2], 0.2, 1)
    assert len(searches) == 15
    for figures in searches.values():
        assert figures["answers"] > 0
        assert figures["refused"] == 0
    printed = search.table({"results": {"120": searches}})
    assert "| hybrid, aligned, by id, 2 clients" in printed
    started = starts.measure(tmp_path, 120, checkpoint)
    assert len(started) == 4
    for figures in started.values():
        assert 0 < figures["ready"]["median"] <= figures["whole"]["median"]
    assert "| after a stop, from a cold disk" in starts.table({"results": {"120": started}})
    uploaded = upload.measure(tmp_path, tiny_checkpoint, 100)
    assert set(uploaded["seconds"]) == {"upload", "upload, gzip"}
    assert 0 < uploaded["compressed_bytes"] < uploaded["bytes"]
    assert "| 100 lines, 1 MB" in upload.table(
        {"settings": {"documents": 100}, "results": uploaded}
    )
