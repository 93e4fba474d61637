"""What holds for files of every kind."""

from pathlib import Path

import pytest

from index.corpus.formats.content import MAX_FILE_BYTES, FileText
from index.corpus.formats.files import read_file_text
from index.errors import CorpusError


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


@pytest.mark.parametrize("suffix", [".txt", ".md", ".rst", ".html"])
def test_the_title_is_the_file_stem_where_there_is_no_word(tmp_path: Path, suffix: str) -> None:
    assert read(tmp_path / f"my.notes{suffix}", b"***\n") == FileText(
        "my.notes", "***\n".strip() if suffix == ".html" else "***\n"
    )


def test_a_title_is_one_short_line(tmp_path: Path) -> None:
    content = read(tmp_path / "x.txt", b"word " * 10_000)
    assert len(content.title) == 200
    assert len(content.text) == 50_000


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with path.open("wb") as stream:
        stream.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(CorpusError, match=f"is larger than {MAX_FILE_BYTES} bytes"):
        read_file_text(path)


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").symlink_to(tmp_path / "gone")
    with pytest.raises(CorpusError, match="leads nowhere"):
        read_file_text(tmp_path / "x.txt")
