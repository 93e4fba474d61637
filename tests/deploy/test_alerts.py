"""Every alert says what is wrong, where to read what to do, and is itself tested."""

from typing import Any

from tests.tools.markdown import anchors


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
