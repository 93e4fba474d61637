"""What an operator gets, as data."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def instructions() -> list[tuple[str, str]]:
    """The Dockerfile as (instruction, arguments), continued lines joined."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    joined = "\n".join(line for line in lines if not line.startswith("#")).replace("\\\n", " ")
    parts = [line.strip().split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name.upper(), arguments) for name, arguments in parts]


@pytest.fixture(scope="session")
def compose() -> dict[str, Any]:
    return load_yaml("docker-compose.yml")


@pytest.fixture(scope="session")
def alerts() -> list[dict[str, Any]]:
    return [rule for group in load_yaml("deploy/alerts.yml")["groups"] for rule in group["rules"]]


@pytest.fixture(scope="session")
def alert_tests() -> list[dict[str, Any]]:
    cases = load_yaml("deploy/alerts_test.yml")["tests"]
    return [case for test in cases for case in test["alert_rule_test"]]


@pytest.fixture(scope="session")
def prometheus() -> dict[str, Any]:
    return load_yaml("deploy/prometheus.yml")


@pytest.fixture(scope="session")
def dashboards() -> list[dict[str, Any]]:
    files = sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))
    return [json.loads(file.read_text()) for file in files]


@pytest.fixture(scope="session")
def panels(dashboards: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of all dashboards, without their rows."""
    found = [panel for dashboard in dashboards for panel in dashboard["panels"]]
    return [panel for panel in found if panel["type"] != "row"]


def load_yaml(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / path).read_text())
    return loaded
