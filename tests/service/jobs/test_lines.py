"""Lines -> batches: the same documents wherever reading begins, and no line is too long to pass."""

import io
import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from service.jobs.lines import MAX_CHARACTERS, Batch, BatchLimits, read_batch

LIMITS = BatchLimits(documents=3, line_bytes=60, text_characters=20)
GOOD = [json.dumps({"id": name, "text": "t" + name}).encode() for name in "abcde"]
lines = st.lists(
    st.sampled_from([*GOOD, b"", b" ", b"{", b"\xff", b'{"id": "x", "text": ""}', b"z" * 61])
)


def read_all(content: bytes, position: int = 0, line: int = 0) -> list[Batch]:
    batches: list[Batch] = []
    while batch := read_batch(io.BytesIO(content), position, line, LIMITS):
        batches.append(batch)
        position, line = batch.position, batch.line
    return batches


@given(lines, st.booleans())
def test_every_line_is_a_document_an_error_or_blank_and_none_is_met_twice(
    given_lines: list[bytes], ended: bool
) -> None:
    content = b"\n".join(given_lines) + (b"\n" if ended else b"")
    batches = read_all(content)
    seen = [number for batch in batches for number, _ in batch.documents]
    seen += [error.line for batch in batches for error in batch.errors]
    filled = [n for n, line in enumerate(given_lines, 1) if line.strip()]
    assert sorted(seen) == filled
    documents = [document.id for batch in batches for _, document in batch.documents]
    assert documents == [json.loads(line)["id"] for line in given_lines if line in GOOD]
    for batch in batches:
        ids = [document.id for _, document in batch.documents]
        assert len(ids) == len(set(ids)) <= LIMITS.documents
    if batches:
        assert batches[-1].position == len(content)


@given(lines)
def test_reading_goes_on_from_the_end_of_any_batch(given_lines: list[bytes]) -> None:
    content = b"\n".join(given_lines)
    batches = read_all(content)
    for number, batch in enumerate(batches):
        rest = read_all(content, batch.position, batch.line)
        assert rest == batches[number + 1 :]


def test_a_batch_is_bounded_in_characters_but_holds_one_document_of_any_length() -> None:
    limits = BatchLimits(documents=64, line_bytes=10**7, text_characters=10**7)
    sizes = [MAX_CHARACTERS // 2] * 3 + [MAX_CHARACTERS * 3, 5]
    content = b"".join(
        json.dumps({"id": str(number), "text": "a" * size}).encode() + b"\n"
        for number, size in enumerate(sizes)
    )
    position, line, batches = 0, 0, []
    while batch := read_batch(io.BytesIO(content), position, line, limits):
        batches.append([number for number, _ in batch.documents])
        position, line = batch.position, batch.line
    assert batches == [[1, 2], [3], [4], [5]]


def test_a_line_of_fifty_megabytes_is_passed_without_being_held() -> None:
    content = b'{"id": "a", "text": "' + b"a" * 50_000_000 + b'"}\n' + GOOD[1]
    stream = io.BytesIO(content)
    tracemalloc.start()
    try:
        batch = read_batch(stream, 0, 0, LIMITS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert batch is not None
    assert [error.line for error in batch.errors] == [1]
    assert [document.id for _, document in batch.documents] == ["b"]
    assert peak < 5_000_000


def test_blank_lines_without_end_are_read_in_bounded_batches() -> None:
    batches = read_all(b"\n" * 25_000 + GOOD[0])
    assert [batch.line for batch in batches] == [10_000, 20_000, 25_001]
