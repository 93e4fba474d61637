"""The report of `longmatch evaluate` as tables."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_WITHOUT_MENTIONS = "retrieval_without_mentions"
_TASKS = ("retrieval", _WITHOUT_MENTIONS, "pairs")


def print_report(report: Mapping[str, Any]) -> None:
    """Print a report to standard output, without the figures by length, which only JSON has."""
    out = Console(soft_wrap=True)
    facts = Table(box=None, show_header=False)
    for name, value in report.items():
        if name not in _TASKS:
            parts = value.items() if isinstance(value, dict) else [("", value)]
            facts.add_row(name, ", ".join(f"{key} {_short(part)}".strip() for key, part in parts))
    out.print(facts)
    for task in _TASKS:
        if task in report:
            out.print(f"\n{_heading(task, report[task])}")
            out.print(_systems(report[task]))


def _heading(task: str, report: Mapping[str, Any]) -> str:
    if task == "pairs":
        what = f"{report['pairs']} pairs, thresholds chosen on {report['threshold_chosen_on']}"
    else:
        which = " without mentions" if task == _WITHOUT_MENTIONS else ""
        what = f"Retrieval{which}, {report['queries']} queries, {report['judgements']} judgements"
    return f"{what}; 95 % intervals in brackets, p against {report['reference']}"


def _systems(report: Mapping[str, Any]) -> Table:
    table = Table(box=None)
    table.add_column("system")
    systems: Mapping[str, Mapping[str, Any]] = report["systems"]
    measures = list(
        dict.fromkeys(name for one in systems.values() for name in one if _is_estimate(one[name]))
    )
    for measure in measures:
        table.add_column(measure, justify="right")
    for system, one in systems.items():
        against = one.get("against", {})
        table.add_row(system, *(_cell(one.get(name), against.get(name)) for name in measures))
    return table


def _is_estimate(value: object) -> bool:
    return isinstance(value, dict) and "value" in value


def _cell(estimate: Mapping[str, float] | None, against: Mapping[str, float] | None) -> str:
    if estimate is None:
        return ""
    cell = f"{estimate['value']:.4f} ({estimate['low']:.3f}-{estimate['high']:.3f})"
    return f"{cell} p {against['p']:.4f}" if against else cell


def _short(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
