"""The texts of the files of a repository that Git tracks, or would."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

Pages = Mapping[str, str]  # text by path


def read_tracked(root: Path, pattern: str) -> Pages:
    """Return the texts of the tracked files that match a pattern."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others"]
    command += ["--exclude-standard", "--", pattern]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.splitlines() if (root / path).is_file()]
    return {path: (root / path).read_text(encoding="utf-8") for path in paths}
