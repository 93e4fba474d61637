"""The benchmark of long texts, on short ones."""

from pathlib import Path

import pytest

from benchmarks.speed import long_document


@pytest.mark.slow
def test_a_text_of_so_many_words_is_measured_and_printed(tiny_ernie_doc: Path) -> None:
    measured = long_document.measure(tiny_ernie_doc, 400)
    assert measured["tokens"] >= 400
    assert measured["blocks"] > 10
    assert measured["peak_bytes"] >= measured["before_bytes"] > 0
    assert measured["processor_seconds"] > 0
    settings = {"checkpoint": "tiny", "precision": "int8"}
    printed = long_document.table({"settings": settings, "results": {"400": measured}})
    assert "| 400" in printed
