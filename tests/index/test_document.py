import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.document import (
    MAX_ID_CHARACTERS,
    MAX_METADATA_BYTES,
    MAX_TITLE_CHARACTERS,
    Document,
    metadata_json,
)
from index.errors import DocumentError

# st.text() leaves lone surrogates out; here they are needed.
ANY_TEXT = st.text(st.characters(exclude_categories=()))


def nested(levels: int) -> dict[str, Any]:
    return {"x": nested(levels - 1)} if levels > 1 else {}


@pytest.mark.parametrize(
    ("fields", "field", "reason"),
    [
        ({"id": ""}, "id", "is empty"),
        ({"id": "x" * (MAX_ID_CHARACTERS + 1)}, "id", "is longer than 512 characters"),
        *(({"id": "a\nb"}, "id", "control character"), ({"id": "a\ud800"}, "id", "lone surrogate")),
        *(({"text": ""}, "text", "is empty"), ({"text": " \t\r\n\u2003"}, "text", "is empty")),
        ({"title": "x" * (MAX_TITLE_CHARACTERS + 1)}, "title", "is longer than 4096 characters"),
        ({"metadata": {"a": object()}}, "metadata", "is not JSON"),
        ({"metadata": {"a": float("nan")}}, "metadata", "is not JSON"),
        ({"metadata": nested(65)}, "metadata", "is nested more than 64 levels deep"),
        ({"metadata": {"a": [nested(64)]}}, "metadata", "is nested more than 64 levels deep"),
        ({"metadata": {"a": "x" * MAX_METADATA_BYTES}}, "metadata", "is larger than 65536 bytes"),
    ],
)
def test_a_bad_field_is_refused_by_name(fields: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=f"^{field}: .*{reason}") as caught:
        Document(**({"id": "a", "text": "text"} | fields))
    assert caught.value.field == field


def test_metadata_that_contains_itself_is_refused() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(DocumentError, match="metadata: is nested more than 64 levels deep"):
        Document("a", "text", metadata=endless)


def test_the_largest_fields_are_accepted() -> None:
    document = Document("ü" * MAX_ID_CHARACTERS, "x", "😀" * MAX_TITLE_CHARACTERS)
    assert Document("a", "x", metadata=nested(64)).metadata == nested(64)
    assert len(document.title) == MAX_TITLE_CHARACTERS


@given(text=ANY_TEXT.filter(str.strip), title=ANY_TEXT, value=ANY_TEXT)
def test_any_text_makes_a_document_that_utf8_can_hold(text: str, title: str, value: str) -> None:
    document = Document("a", text, title, {value: [value]})
    for before, kept in ((text, document.text), (title, document.title)):
        assert kept.encode().decode() == kept
        assert len(kept) == len(before)
        assert all(new in (old, "\ufffd") for old, new in zip(before, kept, strict=True))
    assert metadata_json(document.metadata).encode()


def test_the_content_hash_is_of_the_text_alone() -> None:
    document = Document("a", "text", "title", {"year": 1})
    assert document.content_hash == Document("b", "text").content_hash
    assert document.content_hash != Document("a", "text ", "title", {"year": 1}).content_hash
    assert Document("a", "x\ud800").content_hash == Document("a", "x\ufffd").content_hash


def test_a_title_stands_above_its_text_once() -> None:
    assert Document("a", "The text.").titled_text == "The text."
    assert Document("a", "The text.", " Name ").titled_text == "Name\n\nThe text."
    assert Document("a", " Name: the text.", "Name").titled_text == " Name: the text."


def test_metadata_is_written_one_way() -> None:
    assert metadata_json({"b": [1, None], "a": "ü"}) == metadata_json({"a": "ü", "b": [1, None]})
    assert json.loads(metadata_json({"a": "ü\ud800"})) == {"a": "ü\ufffd"}


def test_metadata_is_what_json_makes_of_it() -> None:
    changing: list[Any] = [None, True]
    document = Document("a", "text", metadata={"pair": (1, 2), "nested": {"list": changing}})
    changing.append("later")
    assert document.metadata == {"pair": [1, 2], "nested": {"list": [None, True]}}
