import os
import time

import pytest

from benchmarks.server.memory_curve import FLAT, as_text, growth, resident_megabytes, sampled_memory


def test_growth_compares_the_last_third_with_the_second() -> None:
    warm_up = [100.0, 150.0, 190.0]
    assert growth([*warm_up, 200.0, 200.0, 200.0, 200.0, 200.0, 200.0]) == 1.0
    grown = growth([*warm_up, 200.0, 210.0, 220.0, 230.0, 240.0, 250.0])
    assert grown == pytest.approx(240 / 210)
    assert grown > FLAT


def test_two_samples_have_no_thirds() -> None:
    with pytest.raises(ValueError, match="thirds"):
        growth([1.0, 2.0])


def test_memory_is_sampled_until_the_end_of_the_block() -> None:
    with sampled_memory(os.getpid(), every=0.01) as curve:
        while len(curve) < 3:
            time.sleep(0.01)
        held = bytearray(os.urandom(1)) * 200_000_000
        samples = len(curve)
        while len(curve) < samples + 2:
            time.sleep(0.01)
    taken = len(curve)
    time.sleep(0.05)
    assert len(curve) == taken
    assert curve[-1][1] - curve[0][1] == pytest.approx(len(held) / 2**20, rel=0.2)
    moments = [moment for moment, _ in curve]
    assert moments == sorted(moments)


def test_a_process_that_is_gone_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="gone"):
        resident_megabytes(2**22 + 1)


def test_a_curve_as_text_rises_from_left_to_right() -> None:
    top, *rows, axis = as_text([(0.0, 100.0), (30.0, 400.0)]).splitlines()
    assert top == "400 MB at the top, 30 s at the right"
    assert rows[0].endswith(" *")
    assert [row for row in rows[1:] if "*" in row] == ["|*"]
    assert len(rows[0]) == len(axis)
