"""PDF."""

from pathlib import Path

import pytest

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.errors import CorpusError
from tests.tools.pdf_files import pdf


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


def test_a_pdf_gives_the_text_of_all_pages_and_its_title(tmp_path: Path) -> None:
    content = pdf(["First page.\nSecond line.", "Second page."], info="/Title (A paper)")
    expected = FileText("A paper", "First page.\nSecond line.\nSecond page.")
    assert read(tmp_path / "x.pdf", content) == expected


def test_a_pdf_without_a_title_is_called_by_its_first_line(tmp_path: Path) -> None:
    assert read(tmp_path / "x.PDF", pdf(["A paper\nText."])).title == "A paper"


def test_a_word_broken_at_a_line_end_of_a_pdf_is_whole(tmp_path: Path) -> None:
    content = pdf(["a long exam-\nple of a hyphen"])
    assert " ".join(read(tmp_path / "x.pdf", content).text.split()) == "a long example of a hyphen"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable PDF"),
        (b"not a PDF", "not a readable PDF"),
        (pdf(["Text."])[:200], "not a readable PDF"),
        (pdf(["Text."], encrypted=True), "is encrypted"),
        (pdf([""]), "has no text"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        read(tmp_path / "x.pdf", content)
