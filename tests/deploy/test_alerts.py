"""Every alert says what is wrong, where to read what to do, and is itself tested."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.markdown import anchors
from tests.tools.programs import require_program


def test_every_alert_has_a_severity_a_summary_and_a_runbook(
    alerts: list[dict[str, Any]], operations: str
) -> None:
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
        assert "{{ $labels.instance }}" in alert["annotations"]["summary"], alert["alert"]
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert anchor in anchors(operations), alert["alert"]


def test_every_alert_is_seen_firing_and_seen_silent(
    alerts: list[dict[str, Any]], alert_tests: list[dict[str, Any]]
) -> None:
    firing = {case["alertname"] for case in alert_tests if case["exp_alerts"]}
    silent = {case["alertname"] for case in alert_tests if not case["exp_alerts"]}
    names = {alert["alert"] for alert in alerts}
    assert firing == names
    assert silent == names


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "deploy/prometheus.yml"), ("test", "rules", "deploy/alerts_test.yml")],
    ids=["config", "rules"],
)
def test_prometheus_reads_the_rules_and_they_pass_their_tests(
    root: Path, arguments: tuple[str, ...]
) -> None:
    done = subprocess.run(
        [require_program("promtool"), *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
