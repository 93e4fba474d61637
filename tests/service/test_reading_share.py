"""A server that encodes a share of the blocks: one share a data directory, and what answers say."""

from collections.abc import Callable

import pytest

from encoder.block_selection import blocks_to_encode
from index.errors import FingerprintMismatchError
from service.settings import Settings
from service.startup import open_engine
from tests.kit.service_fixtures import Client

MakeSettings = Callable[..., Settings]

SUBJECTS = {
    "nests": (("ants", "soil"), ("wasps", "paper"), ("storks", "roofs")),
    "law": (("courts", "rulings"), ("clerks", "files"), ("juries", "verdicts")),
}
LONG = {
    name: " ".join(
        f"In {number} the {item} had {other}." for number in range(8) for item, other in subject
    )
    for name, subject in SUBJECTS.items()
}


@pytest.fixture
def selective(make_client: Callable[..., Client]) -> Client:
    client = make_client(reading_share=0.25)
    documents = [{"id": name, "text": text} for name, text in LONG.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def test_a_document_matches_itself_with_its_receipt(selective: Client) -> None:
    asked = {"text": LONG["law"], "strict": True, "mode": "semantic"}
    by_text = selective.post("/match", json=asked).json()
    best = by_text["matches"][0]
    assert (best["id"], best["vector_score"]) == ("law", pytest.approx(1.0, abs=1e-4))
    assert best["alignment_score"] == pytest.approx(1.0, abs=1e-3)
    receipt = by_text["receipt"]
    assert receipt["tokens"] == receipt["tokens_read"]
    assert receipt["blocks_left_out"] == 0
    share = receipt["tokens_encoded"] / receipt["tokens_read"]
    expected = blocks_to_encode(receipt["blocks"], 0.25) / receipt["blocks"]
    assert share == pytest.approx(expected, abs=0.1)
    stored = selective.get("/documents/law").json()["receipt"]
    assert {**stored, "common_text": 0.0} == receipt
    assert selective.post("/match", json={"id": "law"}).json()["receipt"] == receipt
    metrics = selective.get("/metrics").text
    assert "longmatch_documents_truncated_total 0.0" in metrics
    assert selective.get("/version").json()["checkpoint"]["reading_share"] == 0.25


def test_explanations_have_the_places_of_encoded_blocks(selective: Client) -> None:
    asked = {"text": LONG["law"], "explain": {"matches": 1}}
    best = selective.post("/match", json=asked).json()["matches"][0]
    explained = best["explanation"]
    assert explained["left_coverage"] == 1.0
    pairs = explained["aligned_blocks"]
    assert pairs
    for pair in pairs:
        assert pair["left"]["text"] == pair["right"]["text"]
        start, end = pair["left"]["start"], pair["left"]["end"]
        assert LONG["law"][start:end] == pair["left"]["text"]
    spans = {(item["left"]["start"], item["left"]["end"]) for item in pairs}
    assert sum(end - start for start, end in spans) < 0.7 * len(LONG["law"])


@pytest.mark.parametrize(("first", "other"), [(0.35, 0.25), (0.35, 1.0), (None, 0.5)])
def test_another_share_is_refused(
    make_settings: MakeSettings, first: float | None, other: float
) -> None:
    open_engine(make_settings(**{} if first is None else {"reading_share": first})).opened.close()
    expected = rf"reading share of {first or 1}, not of {other:g}"
    with pytest.raises(FingerprintMismatchError, match=expected) as refused:
        open_engine(make_settings(reading_share=other))
    assert "longmatch reencode --reading-share" in str(refused.value)
    again = open_engine(make_settings())
    assert again.default.checkpoint.reading_share == (first or 1)
    again.opened.close()
