"""The text of a picture, by the program `tesseract` where it is installed."""

import os
import shutil
import subprocess
import time
from functools import cache

PROGRAM = "tesseract"
OCR_SECONDS = "LONGMATCH_OCR_SECONDS"  # of the environment of the process that reads files
_SECONDS = 180.0
_PAGE_SECONDS = 60
_NO_LANGUAGES = ("osd", "equ")


@cache
def languages() -> str:
    """Return the languages that are installed, as the program takes them; "" without it."""
    program = shutil.which(PROGRAM)
    if program is None:
        return ""
    command = [program, "--list-langs"]
    shown = subprocess.run(command, capture_output=True, check=False, text=True)  # noqa: S603
    return "+".join(
        name for name in shown.stdout.split("\n")[1:] if name not in ("", *_NO_LANGUAGES)
    )


def deadline() -> float:
    """Return until when the pictures of a file may be read that is begun now."""
    return time.monotonic() + float(os.environ.get(OCR_SECONDS, _SECONDS))


def read_picture(width: int, height: int, grey: bytes, until: float) -> str | None:
    """Return the text of a picture of `width * height` bytes; None where it cannot be read."""
    if time.monotonic() > until:
        return None
    try:
        found = subprocess.run(  # noqa: S603 - a program of this machine
            [shutil.which(PROGRAM) or PROGRAM, "stdin", "stdout", "-l", languages()],
            input=b"P5\n%d %d\n255\n" % (width, height) + grey,
            capture_output=True,
            check=True,
            timeout=_PAGE_SECONDS,
            env=os.environ | {"OMP_THREAD_LIMIT": "1"},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.decode("utf-8", "replace").replace("\f", "")
