"""The pictures of the page at / in the README."""

import io
import random
import struct

import pytest
from PIL import Image

from benchmarks.pictures.page import COLOURS, MOST_BYTES, PICTURES, SCHEMES, WINDOW, shrink


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_picture_of_each_scheme_is_there_and_small(scheme: str) -> None:
    picture = (PICTURES / f"page-{scheme}.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">II", picture[16:24]) == WINDOW
    assert len(picture) < MOST_BYTES


def test_a_picture_is_shrunk_to_few_colours_and_keeps_its_size() -> None:
    draw = random.Random(7)
    noise = Image.frombytes("RGB", (64, 40), draw.randbytes(64 * 40 * 3))
    before = io.BytesIO()
    noise.save(before, "PNG")
    with Image.open(io.BytesIO(shrink(before.getvalue()))) as after:
        assert after.size == noise.size
        assert len(after.convert("RGB").getcolors(64 * 40) or ()) <= COLOURS
    assert len(shrink(before.getvalue())) < len(before.getvalue())
