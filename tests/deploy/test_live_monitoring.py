"""A real Prometheus scrapes a real server: panels show data, and a fault fires its alert alone."""

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.browser import open_chromium
from tests.kit.process_fixtures import Server, serving
from tests.kit.prometheus_server import PrometheusServer, panel_query
from tests.kit.redis_server import RedisServer
from tests.kit.steady_load import SteadyLoad
from tests.kit.tiers import Tier
from tests.kit.waiting import wait_until

WATCH_SECONDS = 8.0
NOTHING: set[str] = set()

Panels = list[dict[str, Any]]


@contextmanager
def watched(
    folder: Path,
    checkpoint: Path,
    reranker: Path,
    redis: RedisServer,
) -> Iterator[tuple[Server, PrometheusServer]]:
    """Run a server with all its parts, and the Prometheus that scrapes it."""
    given = {"redis_url": redis.url, "reranker": reranker, "maintenance_seconds": 1}
    with serving(folder, folder / "data", checkpoint, **given) as server:
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
        page.wait_for_selector("#index-summary >> text=/document/")
        time.sleep(300 if tier.sweep else WATCH_SECONDS)
        # A panel is empty for a moment where a busy machine has just sent no request of its kind.
        wait_until(lambda: not empty_queries(prometheus, drawn), drawn)
        wait_until(lambda: not panels_without_numbers(prometheus, drawn), drawn)
        assert prometheus.firing() == NOTHING
        assert set(load.statuses) <= {200, 202}
        page.close()


@pytest.mark.slow
def test_an_alert_fires_alone_and_is_silent_again(
    tmp_path: Path, tiny_checkpoint: Path, tiny_reranker: Path, redis_server: RedisServer
) -> None:
    """One for all: the rules are tested by promtool, and what they ask for with each feature."""
    seen: set[str] = set()

    def fires() -> bool:
        seen.update(prometheus.firing())
        return "LongmatchRedis" in seen

    parts = (tmp_path, tiny_checkpoint, tiny_reranker, redis_server)
    with watched(*parts) as (server, prometheus), closing(SteadyLoad(server, rate=10)) as load:
        redis_server.kill()
        wait_until(fires)
        assert seen == {"LongmatchRedis"}
        [panel] = prometheus.query('count(ALERTS{alertstate="firing"})')  # as the overview lists
        assert int(panel["value"][1]) == 1
        redis_server.start()
        wait_until(lambda: not prometheus.firing())
        assert set(load.statuses) <= {200, 202}
