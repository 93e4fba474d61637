import gzip
from pathlib import Path

import pytest

from index.lines import MAX_LINE_BYTES, BadLine, Line, read_lines


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".TXT.GZ"])
def test_lines_with_their_numbers(tmp_path: Path, suffix: str) -> None:
    content = "\ufeffone\r\n\n three \u2028 still\rthree\nfour".encode()
    path = tmp_path / f"x{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.lower().endswith("gz") else content)
    expected = [Line(1, "one"), Line(2, ""), Line(3, " three \u2028 still\rthree"), Line(4, "four")]
    assert list(read_lines(path)) == expected


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"")
    assert list(read_lines(tmp_path / "x")) == []


def test_a_line_that_is_not_utf_8_is_bad_alone(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"one\nt\xffo\nthree\n")
    bad = BadLine(2, "is not UTF-8 at byte 1 of the line")
    assert list(read_lines(tmp_path / "x")) == [Line(1, "one"), bad, Line(3, "three")]


def test_a_line_at_the_limit_is_read_and_one_over_it_is_bad(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as stream:
        for excess in (0, 1, MAX_LINE_BYTES):
            stream.write(b"x" * (MAX_LINE_BYTES + excess) + b"\n")
        stream.write(b"last")
    found = list(read_lines(path))
    first = found[0]
    assert isinstance(first, Line)
    assert len(first.text) == MAX_LINE_BYTES
    reason = f"is longer than {MAX_LINE_BYTES} bytes"
    assert found[1:] == [BadLine(2, reason), BadLine(3, reason), Line(4, "last")]


def test_trailing_bytes_after_gzip_are_named_after_the_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"trailing")
    *lines, last = read_lines(path)
    assert lines == [Line(1, "one"), Line(2, "two")]
    assert isinstance(last, BadLine)
    assert last.number == 3


def test_a_missing_file_is_one_bad_line(tmp_path: Path) -> None:
    assert list(read_lines(tmp_path / "x")) == [
        BadLine(1, "cannot be read: No such file or directory")
    ]
