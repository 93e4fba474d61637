"""Parquet: rows to documents."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from index.corpus.parquet import read_rows
from index.corpus.reader import count_documents, read_corpus
from index.document import Document, SkippedInput
from index.errors import CorpusError
from tests.kit.corpora import documents, ids, refusals


def write(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_rows_are_documents_as_lines_of_json_are(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.parquet",
        {
            "id": ["a", "b"],
            "title": ["First", None],
            "text": ["One.", "Two."],
            "url": ["https://example.org/a", None],
            "metadata": pa.array([{"year": 2020, "tags": ["x", "y"]}, None]),
            "price": pa.array([Decimal("1.50"), Decimal("2.00")]),
            "date": [datetime.date(2020, 1, 2), datetime.date(2021, 3, 4)],
            "words": pa.array([[("k", "v")], []], pa.map_(pa.string(), pa.string())),
        },
    )
    metadata = {"url": "https://example.org/a", "price": 1.5, "date": "2020-01-02"}
    assert documents(path) == [
        Document(
            id="a",
            title="First",
            text="One.",
            metadata={**metadata, "words": {"k": "v"}, "year": 2020, "tags": ["x", "y"]},
        ),
        Document(id="b", text="Two.", metadata={"price": 2, "date": "2021-03-04", "words": {}}),
    ]
    assert count_documents(path) == 2


def test_ids_may_be_numbers_and_metadata_text_of_json(tmp_path: Path) -> None:
    columns = {"_id": [7, 8], "text": ["One.", "Two."], "metadata": ['{"a": 1}', "{}"]}
    path = write(tmp_path / "X.PARQUET", columns)
    assert ids(path) == ["7", "8"]
    assert documents(path)[0].metadata == {"a": 1}


def test_a_bad_row_is_named_with_its_column_and_the_rest_is_read(tmp_path: Path) -> None:
    bad = pa.array([b"ok", b"\xff\xfe"] + [b"ok"] * 6, pa.binary()).view(pa.string())
    path = write(
        tmp_path / "x.parquet",
        {
            "id": ["a", "b", "c", None, "a", "f", "g", "h"],
            "text": ["One.", "Two.", " ", "Four.", "Five.", None, "Seven.", "Eight."],
            "note": bad,
            "score": [1.0] * 6 + [float("nan"), 1.0],
            "metadata": ["{}"] * 7 + ["[1]"],
        },
    )
    assert [document.id for document in documents(path)] == ["a"]
    found = refusals(path)
    assert list(found) == [f"x.parquet: row {number}" for number in range(2, 9)]
    reasons = list(found.values())
    assert reasons[0].startswith("note: is not JSON: 'utf-8' codec")
    assert reasons[1:] == [
        *("text: is empty", "id: is missing", "the id 'a' already occurs in row 1"),
        "text: is missing",
        "score: is not JSON: Out of range float values are not JSON compliant",
        "metadata: is a list, not an object",
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1 and no more", b"PAR1" * 99])
def test_what_is_no_parquet_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    for use in (lambda: list(read_corpus(path)), lambda: count_documents(path)):
        with pytest.raises(CorpusError, match=r"x\.parquet: is damaged, or not Parquet"):
            use()


def test_rows_before_damage_are_read(tmp_path: Path) -> None:
    texts = [f"Text {number}." for number in range(1000)]
    columns = {"id": [str(number) for number in range(1000)], "text": texts}
    path = write(tmp_path / "x.parquet", columns, row_group_size=100, compression="gzip")
    data = bytearray(path.read_bytes())
    begin = pq.ParquetFile(path).metadata.row_group(5).column(1).data_page_offset
    data[begin : begin + 40] = b"\xff" * 40
    path.write_bytes(data)
    found = list(read_corpus(path))
    last = found.pop()
    assert [item.id for item in found if isinstance(item, Document)] == columns["id"][:500]
    assert isinstance(last, SkippedInput)
    assert last.where == "x.parquet: row 501"
    assert "is damaged" in last.reason


@pytest.mark.slow
def test_a_large_table_is_not_held_in_memory(tmp_path: Path) -> None:
    text = "word " * 200_000
    columns = {"id": list(range(500)), "text": [text] * 500}  # 500 MB in one group of rows
    path = write(
        tmp_path / "x.parquet", columns, use_dictionary=False, write_batch_size=1, data_page_size=1
    )
    before = pa.total_allocated_bytes()
    for row in read_rows(path):
        assert isinstance(row, dict)
        assert row["text"] == text
        assert pa.total_allocated_bytes() - before < 64 * 2**20
