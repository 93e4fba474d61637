"""The pictures of the README, and what they are taken of."""

import struct
from pathlib import Path

import pytest

from benchmarks.pictures.report import PICTURES, SCHEMES, render_module


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_picture_of_each_scheme_is_there_and_small(scheme: str) -> None:
    picture = (PICTURES / f"report-{scheme}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", picture[16:24])
    assert (width, height) == (1280, 840)
    assert len(picture) < 300_000


def test_a_module_is_a_page_with_a_section_a_class() -> None:
    page = render_module("queue")
    assert page.startswith("# queue\n\nA multi-producer, multi-consumer queue.\n\n")
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert {"## Queue", "## PriorityQueue", "## LifoQueue"} <= set(headings)
    assert "put(self, item, block=True, timeout=None)\n\nPut an item into the queue." in page


def test_the_page_that_is_pictured_is_of_modules_that_every_python_has() -> None:
    locks, threads = render_module("asyncio.locks"), render_module("threading")
    for name in ("Event", "Condition", "Semaphore", "Barrier"):
        assert f"## {name}\n" in locks
        assert f"## {name}\n" in threads
    assert Path(__file__).parents[3] / "docs" / "pictures" == PICTURES
