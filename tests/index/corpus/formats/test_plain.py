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
        (b"a\0b\r\nc" * 20 + b"d" * 2000, "a\0b\r\nc" * 20 + "d" * 2000),
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


TEXTS = {
    "english": "The river carries cold water to the sea.\r\n" * 9,
    "russian": "Река несёт холодную воду к морю.\n" * 9,
    "greek": "Το ποτάμι κουβαλά κρύο νερό στη θάλασσα.\n" * 9,
    "chinese": "河流把冷水带到大海，一行一行地写下来。\n" * 9,
    "emoji": "A smile 😀 and another 😃.\n" * 9,
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("language", TEXTS)
def test_utf_16_without_a_byte_order_mark_is_recognised(language: str, encoding: str) -> None:
    assert decode_text(TEXTS[language].encode(encoding)) == TEXTS[language]


@pytest.mark.parametrize("language", TEXTS)
def test_utf_8_is_never_taken_for_anything_else(language: str) -> None:
    assert decode_text(TEXTS[language].encode()) == TEXTS[language]


@pytest.mark.parametrize(
    "data",
    [
        TEXTS["english"].encode("utf-32-le"),
        TEXTS["russian"].encode("utf-32-be"),
        TEXTS["russian"].replace(" ", "").replace("\n", "").encode("utf-16-le"),
        bytes(range(128)) * 99,
    ],
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    with pytest.raises(CorpusError, match="control characters"):
        decode_text(data)


def test_text_is_left_as_it_is(tmp_path: Path) -> None:
    content = "\n  * * *\n  The title \r\n\r\n\tText.\x0c\n"
    assert read(tmp_path / "x.txt", content.encode()) == FileText("The title", content)
