"""A real Prometheus scrapes a real server: panels show data, and a fault fires its alert alone."""

import json
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.kit.browser import open_chromium
from tests.kit.process_fixtures import COMMAND, Server, serving
from tests.kit.prometheus_server import PrometheusServer, panel_query
from tests.kit.redis_server import RedisServer
from tests.kit.steady_load import SteadyLoad, make_text
from tests.kit.tiers import Tier
from tests.kit.waiting import wait_until

# `longmatch` that divides a few documents into lists, and visits one of them.
ONE_LIST_VISITED = """
import index.vectors.lists as lists
lists.ONE_LIST_BELOW = 100
lists.nprobe_bounds = lambda nlist: (1, 1)
lists.default_nprobe = lambda nlist: 1
from service.maintenance import RecallMonitor
RecallMonitor.__init__.__defaults__ = (1.0,)
from service.cli.main import main
main()
"""
# `longmatch` whose encoder fails.
FAILING_ENCODER = """
import encoder.onnx_encoder as onnx
def fail(*arguments, **named):
    raise RuntimeError("the device is gone")
import service.process as process
opened = process.open_engine
def open_then_fail(*arguments):
    engine = opened(*arguments)
    onnx.OnnxEncoder.encode_blocks = fail
    return engine
process.open_engine = open_then_fail
from service.cli.main import main
main()
"""
BURN = {"LongmatchBudgetBurnFast", "LongmatchBudgetBurnSlow"}
WATCH_SECONDS = 8.0
NOTHING: set[str] = set()

Panels = list[dict[str, Any]]


@contextmanager
def watched(
    folder: Path,
    checkpoint: Path,
    reranker: Path,
    redis: RedisServer,
    program: str | None = None,
    **settings: object,
) -> Iterator[tuple[Server, PrometheusServer]]:
    """Run a server with all its parts, and the Prometheus that scrapes it."""
    given = {"redis_url": redis.url, "reranker": reranker, "maintenance_seconds": 1}
    command = COMMAND if program is None else [sys.executable, "-c", program]
    with serving(folder, folder / "data", checkpoint, command, **given | settings) as server:
        target = server.url.removeprefix("http://")
        with closing(PrometheusServer(folder, target)) as prometheus:
            yield server, prometheus


def empty_queries(prometheus: PrometheusServer, panels: Panels) -> list[str]:
    """Return the queries of panels that find nothing."""
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    return [query for query in queries if not prometheus.query(panel_query(query))]


def panels_without_numbers(prometheus: PrometheusServer, panels: Panels) -> list[str]:
    """Return the panels none of whose queries finds a number."""
    missing = []
    for panel in panels:
        found = [
            float(series["value"][1])
            for target in panel["targets"]
            for series in prometheus.query(panel_query(target["expr"]))
        ]
        if not any(map(math.isfinite, found)):
            missing.append(panel["title"])
    return missing


@pytest.mark.slow
def test_every_panel_shows_data_of_a_server_under_load(
    tmp_path: Path,
    panels: Panels,
    tiny_checkpoint: Path,
    tiny_reranker: Path,
    redis_server: RedisServer,
    tier: Tier,
) -> None:
    """In a sweep: 20 requests a second for five minutes, with the page open."""
    drawn = [panel for panel in panels if panel["title"] != "Firing alerts"]
    with (
        open_chromium() as browser,
        watched(tmp_path, tiny_checkpoint, tiny_reranker, redis_server) as (server, prometheus),
        closing(SteadyLoad(server, rate=20)) as load,
    ):
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_text("Index").first.wait_for()
        time.sleep(300 if tier.sweep else WATCH_SECONDS)
        assert empty_queries(prometheus, drawn) == []
        assert panels_without_numbers(prometheus, drawn) == []
        assert prometheus.firing() == NOTHING
        assert set(load.statuses) <= {200, 202}
        page.close()


def assert_only(prometheus: PrometheusServer, expected: set[str]) -> None:
    """Wait until all these alerts fire; assert that no other did meanwhile."""
    others: set[str] = set()

    def all_fire() -> bool:
        firing = prometheus.firing()
        others.update(firing - expected)
        return expected <= firing

    wait_until(all_fire, expected)
    assert others == NOTHING
    [panel] = prometheus.query('count(ALERTS{alertstate="firing"})')  # as the overview lists them
    assert int(panel["value"][1]) == len(expected)


def ask_in_vain(server: Server, timeout_ms: int) -> None:
    """Send a match that cannot be answered in this time, of a text that is read whole."""
    body = json.dumps({"text": make_text(random.Random(2), 120)}).encode()
    headers = {"Content-Type": "application/json", "X-Request-Timeout-Ms": str(timeout_ms)}
    with suppress(HTTPError):
        urlopen(Request(f"{server.url}/match", body, headers), timeout=30).close()


@pytest.fixture
def parts(
    tmp_path: Path, tiny_checkpoint: Path, tiny_reranker: Path, redis_server: RedisServer
) -> tuple[Path, Path, Path, RedisServer]:
    return tmp_path, tiny_checkpoint, tiny_reranker, redis_server


@pytest.mark.slow
def test_a_redis_that_stops_and_comes_back(
    parts: tuple[Path, Path, Path, RedisServer], redis_server: RedisServer
) -> None:
    with watched(*parts) as (server, prometheus), closing(SteadyLoad(server, rate=10)) as load:
        redis_server.kill()
        assert_only(prometheus, {"LongmatchRedis"})
        redis_server.start()
        wait_until(lambda: not prometheus.firing())
        assert set(load.statuses) <= {200, 202}


@pytest.mark.slow
def test_a_server_that_is_gone(parts: tuple[Path, Path, Path, RedisServer]) -> None:
    with watched(*parts) as (server, prometheus):
        wait_until(lambda: bool(prometheus.query('up{job="longmatch"} == 1')))
        server.stop(signal.SIGKILL)
        assert_only(prometheus, {"LongmatchDown"})


@pytest.mark.slow
def test_searches_that_find_too_little(parts: tuple[Path, Path, Path, RedisServer]) -> None:
    # A lower target: the service would not begin to use such a generation.
    few = {"target_recall": 0.3}
    with (
        watched(*parts, ONE_LIST_VISITED, **few) as (server, prometheus),
        closing(SteadyLoad(server, rate=10, documents=600)),
    ):
        assert_only(prometheus, {"LongmatchRecallLow"})


@pytest.mark.slow
def test_documents_longer_than_the_checkpoint_reads(
    parts: tuple[Path, Path, Path, RedisServer],
) -> None:
    long = make_text(random.Random(3), 2_400)
    with (
        watched(*parts) as (server, prometheus),
        closing(SteadyLoad(server, rate=5)),
        repeated(lambda: server.request("POST", "/match", {"text": long})),
    ):
        assert_only(prometheus, {"LongmatchDocumentsLeftOut"})


@pytest.mark.slow
def test_clients_in_too_great_a_hurry(parts: tuple[Path, Path, Path, RedisServer]) -> None:
    # Nothing is ahead of them: on a busy machine, they would be refused for what is (503).
    with watched(*parts) as (server, prometheus), repeated(lambda: ask_in_vain(server, 1)):
        assert_only(prometheus, {"LongmatchDeadlines"})


@pytest.mark.slow
def test_a_server_that_is_full(parts: tuple[Path, Path, Path, RedisServer]) -> None:
    page = make_text(random.Random(4), 300)
    with (
        watched(*parts, max_active_requests=1) as (server, prometheus),
        repeated(lambda: server.request("POST", "/match", {"text": page}), clients=6),
    ):
        assert_only(prometheus, {"LongmatchRefusals"} | BURN)


@pytest.mark.slow
def test_an_encoder_that_fails(parts: tuple[Path, Path, Path, RedisServer]) -> None:
    with (
        watched(*parts, FAILING_ENCODER) as (server, prometheus),
        repeated(lambda: ask_in_vain(server, 30_000)),
    ):
        assert_only(prometheus, {"LongmatchErrors"} | BURN)


@contextmanager
def repeated(action: Callable[[], object], clients: int = 1) -> Iterator[None]:
    """Do something until the end, up to ten times a second in each of some threads."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(0.1):
            action()

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
