"""Every alert says what is wrong, where to read what to do, and is itself tested."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kit.markdown import anchors
from tests.kit.programs import require_program


def test_every_alert_has_a_severity_a_summary_and_a_runbook(
    alerts: list[dict[str, Any]], root: Path
) -> None:
    headings = anchors((root / "docs/operations.md").read_text())
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}, alert["alert"]
        assert "{{ $labels.instance }}" in alert["annotations"]["summary"], alert["alert"]
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert page == "docs/operations.md"
        assert anchor in headings, alert["alert"]


def test_every_alert_is_seen_firing_and_seen_silent(
    alerts: list[dict[str, Any]], alert_tests: list[dict[str, Any]]
) -> None:
    names = {alert["alert"] for alert in alerts}
    assert {case["alertname"] for case in alert_tests if case["exp_alerts"]} == names
    assert {case["alertname"] for case in alert_tests if not case["exp_alerts"]} == names


@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "deploy/prometheus.yml"), ("test", "rules", "deploy/alerts_test.yml")],
    ids=["config", "rules"],
)
def test_promtool_reads_the_rules_and_they_pass(root: Path, arguments: tuple[str, ...]) -> None:
    command = [require_program("promtool"), *arguments]
    seldom = os.environ | {"GOGC": "800"}  # it collects garbage for a fifth of its time else
    done = subprocess.run(command, cwd=root, env=seldom, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
