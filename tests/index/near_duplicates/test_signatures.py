"""Signatures: what they estimate, that they stay the same, and what is too short for one."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.errors import StoreError
from index.near_duplicates.signatures import (
    BANDS,
    FEWEST_WORDS,
    band_keys,
    resemblances,
    sign,
    signing_rule,
    unpack,
)

REPOSITORY = Path(__file__).parents[3]


def words(count: int, first: int = 0) -> str:
    return " ".join(f"w{number}" for number in range(first, first + count))


@settings(max_examples=25, deadline=None)
@given(shared=st.integers(0, 1_000))
def test_a_resemblance_is_about_that_of_the_rows(shared: int) -> None:
    first, other = words(1_000), words(1_000, 1_000 - shared)
    rows = max(0, shared - 2)
    [estimated] = resemblances(sign(first), [sign(other)]).tolist()
    assert estimated == pytest.approx(rows / (2 * 998 - rows), abs=0.17)  # four deviations


def test_resembling_texts_share_a_band() -> None:
    chance = random.Random(1)
    found = 0
    for turn in range(100):
        first = chance.randrange(10**9)
        text, other = words(400, first), words(400, first + 200)  # a resemblance of a third
        found += bool(set(band_keys(sign(text))) & set(band_keys(sign(other))))
        assert not set(band_keys(sign(text))) & set(band_keys(sign(words(400, turn * 500))))
    assert found >= 90


def test_case_and_white_space_do_not_count() -> None:
    assert sign(words(80)).tolist() == sign(words(80).upper().replace(" ", "\n\t ")).tolist()


def test_a_short_text_has_no_signature() -> None:
    assert len(sign(words(FEWEST_WORDS - 1))) == 0
    assert band_keys(sign("a few words")) == []
    assert len(band_keys(sign(words(FEWEST_WORDS)))) == BANDS


def test_a_script_without_spaces_has_words() -> None:
    text = "".join(chr(0x4E00 + 7 * number) for number in range(300))
    [estimated] = resemblances(sign(text), [sign(text[:200])]).tolist()
    assert estimated == pytest.approx(198 / 298, abs=0.17)


def test_a_signature_is_the_same_in_every_process() -> None:
    code = (
        "from index.near_duplicates.signatures import sign, signing_rule\n"
        "print(sign(' '.join(f'w{n}' for n in range(99))).tolist(), signing_rule())"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert finished.stdout == f"{sign(words(99)).tolist()} {signing_rule()}\n"


@pytest.mark.parametrize("damaged", [b"abc", "text", 5])
def test_a_damaged_signature_is_refused(damaged: bytes) -> None:
    with pytest.raises(StoreError, match="signature of a text is damaged"):
        unpack(damaged)
