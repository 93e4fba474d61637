"""Plain text: its encodings."""

from pathlib import Path

import pytest

from index.corpus.formats.content import FileText
from index.corpus.formats.files import read_file_text
from index.corpus.formats.plain import decode_text
from index.errors import CorpusError


def read(path: Path, content: bytes) -> FileText:
    path.write_bytes(content)
    return read_file_text(path)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Größe".encode(), "Größe"),
        ("Größe".encode("utf-8-sig"), "Größe"),
        ("Größe 漢字 😀".encode("utf-16"), "Größe 漢字 😀"),
        (b"\xfe\xff" + "Größe 漢字 😀".encode("utf-16-be"), "Größe 漢字 😀"),
        (b"a\0b\r\nc", "a\0b\r\nc"),
        (b"", ""),
    ],
)
def test_text_that_is_decoded(data: bytes, text: str) -> None:
    assert decode_text(data) == text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"abc\xe9 d", "is not UTF-8 at byte 3"),
        (b"\xef\xbb\xbfabc\xe9", "is not UTF-8 at byte 6"),
        (b"\xed\xa0\x80", "is not UTF-8 at byte 0"),
        (b"\xff\xfea\0b", "is not UTF-16 at byte 4"),
        (b"\xff\xfea\0\0\xd8b\0", "is not UTF-16 at byte 4"),
    ],
)
def test_the_byte_that_is_no_text_is_named(data: bytes, message: str) -> None:
    with pytest.raises(CorpusError) as caught:
        decode_text(data)
    assert str(caught.value) == message


def test_text_is_left_as_it_is(tmp_path: Path) -> None:
    content = "\n  * * *\n  The title \r\n\r\n\tText.\x0c\n"
    assert read(tmp_path / "x.txt", content.encode()) == FileText("The title", content)
