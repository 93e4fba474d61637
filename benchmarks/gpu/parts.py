"""Measurements in parts: what was measured is kept, and the same command goes on with the rest."""

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from encoder.atomic_files import write_atomically


@dataclass(frozen=True, slots=True)
class Part:
    """One measurement.

    Attributes:
        name: a file name.
        measure: returns its result, JSON-serialisable; given those of the parts before it.
    """

    name: str
    measure: Callable[[dict[str, Any]], Any]


def run_parts(parts: Iterable[Part], work: Path, minutes: float) -> dict[str, Any]:
    """Measure what has not been measured, and return all results by name.

    A part is not begun when it might not end in time: the longest one so far counts.

    Args:
        parts: in order.
        work: where results are kept; made if it is missing.
        minutes: that this run may take.

    Raises:
        typer.Exit: the time is up, with the status EX_TEMPFAIL: the same command goes on.
    """
    work.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    results: dict[str, Any] = {}
    longest = 0.0
    for part in parts:
        kept = work / f"{part.name}.json"
        if kept.exists():
            results[part.name] = json.loads(kept.read_text(encoding="utf-8"))
            typer.echo(f"{part.name}: done before")
            continue
        started = time.monotonic()
        if started + longest > began + 60 * minutes:
            typer.echo("the time is up: run the same command again to go on")
            raise typer.Exit(os.EX_TEMPFAIL)
        results[part.name] = part.measure(results)
        write_atomically(kept, json.dumps(results[part.name]))
        longest = max(longest, time.monotonic() - started)
        typer.echo(f"{part.name}: {time.monotonic() - started:.1f} s")
    return results
