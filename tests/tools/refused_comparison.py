"""A comparison of models that is refused before the work."""

from collections.abc import Sequence
from pathlib import Path

from tests.tools.command import Run


def refusal_of(
    longmatch: Run, corpus: Path, bert: Path, plan: Path, output: Path, arguments: Sequence[object]
) -> str:
    """Return the error of `longmatch bench models`, in one line; nothing was written."""
    command = ["bench", "models", corpus, "--bert", bert, "--plan", plan, "-o", output]
    answer = longmatch(*command, *arguments)
    assert answer.status == 2
    assert not output.exists()
    return " ".join(answer.err.split())
