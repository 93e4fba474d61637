"""Every metric and label that the dashboard and the alerts ask for is one that we expose."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from service.app import describe_app
from service.metrics import Metrics

# What Prometheus adds to every series that it scrapes.
TARGET_LABELS = {"instance", "job"}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
# Prometheus's own series, and those of the client library, which not every platform has.
FOREIGN: dict[str, set[str]] = {
    "up": set(), "ALERTS": {"alertname", "alertstate", "severity"},
    "process_cpu_seconds_total": set(), "process_open_fds": set(), "process_max_fds": set(),
    "process_resident_memory_bytes": set(), "process_start_time_seconds": set(),
}  # fmt: skip
PREFIX = "/collections/{collection}/"
WORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right"}


def exposed() -> dict[str, set[str]]:
    """Labels of every series, by its name."""
    series = {name: labels | TARGET_LABELS for name, labels in FOREIGN.items()}
    metric: MetricWrapperBase | CollectorRegistry
    for metric in vars(Metrics()).values():
        if isinstance(metric, CollectorRegistry):
            continue
        [family] = metric.describe()
        for suffix in SUFFIXES[family.type]:
            labels = set(metric._labelnames) | TARGET_LABELS
            series[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return series


def selectors(query: str) -> Iterator[tuple[str, set[str]]]:
    """(metric, labels it is selected by) of each selector of a PromQL query."""
    bare = re.sub(r'"[^"]*"', '""', query)
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    bare = re.sub(r"\[[^]]*\]", " ", bare)
    for match in re.finditer(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?", bare):
        name, braces, call = match.groups()
        if not call and name not in WORDS:
            yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", braces or ""))


def grouping_labels(query: str) -> set[str]:
    lists = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", query)
    return {label.strip() for found in lists for label in found.split(",") if label.strip()}


def check(query: str) -> None:
    series = exposed()
    found = list(selectors(query))
    assert found, query
    known: set[str] = set()
    for name, labels in found:
        assert name in series, f"{name} is not exposed: {query}"
        assert labels <= series[name], f"{name} has no {labels - series[name]}: {query}"
        known |= series[name]
    assert grouping_labels(query) <= known, query


@pytest.fixture(scope="module")
def targets(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [target for panel in panels for target in panel["targets"]]


@pytest.fixture(scope="module")
def queries(targets: list[dict[str, Any]], alerts: list[dict[str, Any]]) -> list[str]:
    assert targets
    assert alerts
    return [asking["expr"] for asking in [*targets, *alerts]]


def test_dashboards_and_alerts_ask_for_series_that_exist(queries: list[str]) -> None:
    for query in queries:
        check(query)


def test_dashboard_variables_ask_for_series_that_exist(dashboards: list[dict[str, Any]]) -> None:
    queries = [
        variable["query"]["query"]
        for dashboard in dashboards
        for variable in dashboard["templating"]["list"]
        if variable["type"] == "query"
    ]
    assert queries
    for query in queries:
        selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()  # type: ignore[union-attr]
        check(selector)
        assert label in TARGET_LABELS


def test_shares_are_of_every_route_that_works_and_of_no_other(queries: list[str]) -> None:
    shares = [query for query in queries if "/ " in query]
    patterns = {found for query in shares for found in re.findall(r'route=~"([^"]*)"', query)}
    [pattern] = patterns
    app = describe_app()
    # Requests of a collection count under the path without its prefix.
    paths = {path for path in app.openapi()["paths"] if not path.startswith(PREFIX)}
    operations = {path for path in paths if "operations" in tags(app, path)}
    assert operations >= {"/livez", "/readyz", "/metrics", "/version"}
    assert {path for path in paths if re.fullmatch(pattern, path)} == paths - operations


def tags(app: FastAPI, path: str) -> set[str]:
    return {tag for operation in app.openapi()["paths"][path].values() for tag in operation["tags"]}


def test_alerts_on_one_route_name_one_that_exists(alerts: list[dict[str, Any]]) -> None:
    named = {found for alert in alerts for found in re.findall(r'route="([^"]*)"', alert["expr"])}
    assert named
    assert named <= set(describe_app().openapi()["paths"])


def test_every_metric_of_ours_is_watched(queries: list[str]) -> None:
    watched = {name for query in queries for name, _ in selectors(query)}
    metrics = Metrics()
    for family in metrics.registry.collect():
        if family.name.startswith("longmatch_"):
            assert any(name.startswith(family.name) for name in watched), family.name


def test_every_metric_of_ours_moves(root: Path) -> None:
    sources = [path for path in (root / "service").rglob("*.py") if path.name != "metrics.py"]
    trees = [ast.parse(path.read_text()) for path in sources]
    touched = {
        node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    assert vars(Metrics()).keys() <= touched
