"""POST /text: files of every kind become text, and what is hostile in one harms nobody."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from index.corpus.file_reader import ReadingLimits
from service.errors import InvalidInputError, OverloadedError
from service.text.logic import FILE_TYPES, SentFiles
from tests.kit.office_files import archive, docx_parts, epub_parts, paragraph
from tests.kit.pdf_files import pdf, pdf_of_operators

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
BEES = "Bees live in hives."
FILES = {
    "application/pdf": pdf([f"Of bees\n{BEES}"], info="/Title (Of bees)"),
    DOCX: archive(docx_parts(paragraph(BEES), title="Of bees")),
    "application/epub+zip": archive(epub_parts({"one": f"<p>{BEES}</p>"}, title="Of bees")),
    "text/html": f"<title>Of bees</title><p>{BEES}</p>".encode(),
    "text/markdown": f"# Of bees\n\n{BEES}".encode(),
    "text/x-rst": f"Of bees\n=======\n\n{BEES}".encode(),
    "text/plain": BEES.encode(),
}


def send(client: Any, kind: str, content: bytes) -> Any:
    return client.post("/text", content=content, headers={"Content-Type": kind})


def test_a_file_of_each_kind_becomes_title_and_text(library: Any) -> None:
    assert FILES.keys() == FILE_TYPES.keys()
    for kind, content in FILES.items():
        answer = send(library, kind, content).json()
        assert BEES in answer["text"], kind
        assert answer["title"] == (BEES if kind == "text/plain" else "Of bees"), kind
        assert answer["characters"] == len(answer["text"])
        assert answer["metadata"].get("pages") == (1 if kind == "application/pdf" else None), kind
    found = library.post("/match", json={"text": answer["text"]}).json()
    assert found["matches"][0]["id"] == "bees"


@pytest.mark.parametrize(
    ("kind", "content", "expected"),
    [
        ("application/pdf", b"%PDF-1.7", "the file is not a readable PDF"),
        ("application/pdf", pdf([BEES], encrypted=True), "the file is encrypted"),
        ("application/pdf", pdf([""]), "the file has no text; where its pages are pictures"),
        (DOCX, b"PK", "the file is encrypted or not a readable DOCX"),
        ("text/plain", b"a" * 2001, "the file has 2001 characters, more than 2000"),
        ("text/plain", b"", "the file has no text"),
    ],
    ids=["damaged", "encrypted", "pictures", "no archive", "long", "empty"],
)
def test_what_is_wrong_with_a_file_is_said(
    small: Any, kind: str, content: bytes, expected: str
) -> None:
    answer = send(small, kind, content)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert expected in error["detail"]
    assert error.get("limit") == (2000 if "2000" in expected else None)


@pytest.fixture(scope="module")
def small(make_shared_client: Any) -> Any:
    return make_shared_client(max_text_characters=2000, max_body_bytes=100_000)


async def never() -> AsyncIterator[bytes]:
    pytest.fail("the file was read")
    yield b""


@pytest.mark.parametrize(
    ("kind", "length", "status"),
    [("image/png", "9", 415), ("application/json", "9", 415), ("application/pdf", "100001", 413)],
)
def test_a_file_that_is_not_read_is_refused_by_its_head(
    small: Any, kind: str, length: str, status: int
) -> None:
    headers = {"Content-Type": kind, "Content-Length": length}
    answer = small.post("http://localhost/text", content=never(), headers=headers)
    assert answer.status_code == status
    if status == 415:
        assert "application/pdf" in answer.json()["detail"]


def test_a_hostile_file_ends_its_reader_and_nothing_else(
    library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.text.logic.LIMITS", ReadingLimits(memory_bytes=384 * 2**20))
    files = SentFiles()
    hostile = pdf_of_operators(b"/P <</A 1>> BDC ", 2_000_000)

    async def read() -> None:
        with pytest.raises(InvalidInputError, match="takes more than 384 MiB of memory to read"):
            await files.read(hostile, "application/pdf", 2000, "sender")
        found = await files.read(FILES["application/pdf"], "application/pdf", 2000, "sender")
        assert found.title == "Of bees"

    asyncio.run(read())
    files.close()


def test_more_files_than_can_wait_are_refused() -> None:
    files = SentFiles()

    async def read() -> list[Any]:
        clients = ["greedy"] * 18 + ["patient"] * 2
        reading = (files.read(FILES[DOCX], DOCX, 2000, client) for client in clients)
        return await asyncio.gather(*reading, return_exceptions=True)

    answers = asyncio.run(read())
    refused = [answer for answer in answers if isinstance(answer, OverloadedError)]
    assert len(refused) == 14  # a client may have half of the eight places
    assert not any(isinstance(answer, OverloadedError) for answer in answers[18:])
    assert {item.reason for item in refused} == {"files"}
    assert {answer.title for answer in answers if answer not in refused} == {"Of bees"}
    files.close()
