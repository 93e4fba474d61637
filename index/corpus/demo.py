"""The demo corpus: the documentation of Python's standard library, which every machine has."""

import os
import subprocess
import sys
from pathlib import Path

from encoder.atomic_files import write_atomically
from index.errors import CorpusError

TIMEOUT_SECONDS = 300


def write_stdlib_corpus(path: Path) -> int:
    """Write the documentation of the standard library's modules as a JSON Lines corpus.

    One document a module or submodule, of 150 to 12,000 words: `id` is the dotted name, `title` the
    name and the first line of its docstring. The same Python gives the same bytes. `path` is
    replaced as a whole or, on any error, left as it was; its folder is created if it is missing.

    Returns:
        How many documents were written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = _render()
    write_atomically(path, lines)
    return lines.count(b"\n")


def _render() -> bytes:
    """Render in a separate process, so that no import changes or stops this one."""
    script = Path(__file__).with_name("stdlib_docs.py")
    # -P -S -s: modules come from the standard library only, never from the current directory.
    command = [sys.executable, "-P", "-S", "-s", str(script)]
    try:
        finished = subprocess.run(  # noqa: S603 - our own file with our own interpreter
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise CorpusError(
            f"the standard library was not rendered within {TIMEOUT_SECONDS} seconds"
        ) from error
    if finished.returncode != 0:
        reason = finished.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise CorpusError(
            f"the standard library was not rendered (exit status {finished.returncode}): {reason}"
        )
    return finished.stdout


def _environment() -> dict[str, str]:
    # Without the variables that change what Python imports, and without a display or a browser.
    dropped = ("PYTHON", "DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "TERM": "dumb"}
