from collections import Counter
from pathlib import Path

import pytest

from benchmarks.common import read_documents
from benchmarks.speed import families
from benchmarks.synthetic import planted_families
from benchmarks.synthetic.planted_families import PLANTED, PlantedDocument, plant
from index.document import Document


@pytest.fixture(scope="module")
def documents() -> list[Document]:
    return read_documents(None, 60)


def words(text: str) -> Counter[str]:
    return Counter(text.split())


def test_what_is_planted_is_what_it_says(documents: list[Document]) -> None:
    planted = plant(documents, 4, 1)
    assert plant(documents, 4, 1) == planted
    assert plant(documents, 4, 2) != planted
    texts = {one.document.id: one.document.text for one in planted}
    assert len(texts) == len(planted)
    kinds = Counter(one.kind for one in planted)
    assert {kind: kinds[kind] for kind in PLANTED} == dict.fromkeys(PLANTED, 4)
    assert kinds[planted_families.HALF] == 8
    for one in planted:
        original = texts[one.family]
        kept = (words(one.document.text) & words(original)).total() / words(original).total()
        match one.kind:
            case planted_families.COPY:
                assert one.document.text == original
            case planted_families.CONCATENATED:
                assert kept > 0.99
                assert 1 < len(one.document.text) / len(original) <= 2.01
            case kind if kind in planted_families.EDITS:
                assert 1 - kept == pytest.approx(planted_families.EDITS[kind] / 1.5, rel=0.9)


def test_too_few_documents_are_refused(documents: list[Document]) -> None:
    with pytest.raises(ValueError, match="not enough"):
        plant(documents[:5], 4, 1)


def test_the_judgement_counts_pairs_and_kinds() -> None:
    def planted(name: str, kind: str, family: str) -> PlantedDocument:
        return PlantedDocument(Document(name, "text"), kind, family)

    some = [planted(name, "original", name) for name in ("a", "b")]
    some += [planted(f"a {kind}", kind, "a") for kind in PLANTED]
    right = {one.document.id: 1 for one in some if one.family == "a"}
    found = families.compare_families(some, right)
    assert (found["precision"], found["pairs"], found["wrong"]) == (1.0, 21, {})
    assert set(found["recall"].values()) == {1.0}
    found = families.compare_families(some, {"a": 1, "b": 1, "a copy": 1})
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["wrong"] == {"copy - original": 1, "original - original": 1}
    assert found["recall"] == {kind: float(kind == "copy") for kind in PLANTED}


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(
    documents: list[Document], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(families, "ROUNDS", 2)
    monkeypatch.setattr(planted_families, "MOST_WORDS", 220)
    planted = [
        one
        for one in plant(documents, 2, 1)
        if one.kind in ("copy", "1 % of words") or one.family.startswith(one.document.id)
    ][:16]
    complete = [one for one in plant(documents, 2, 1) if one.kind in PLANTED]
    chosen = {one.document.id: one for one in (*planted, *complete)}
    results = families.measure(list(chosen.values()))
    results |= families.measure_candidates([one.document.text for one in planted], 500)
    assert results["precision"] == 1.0
    assert set(results["recall"]) == set(PLANTED)
    assert results["ingest_to_without"]["median"] < 1.5
    assert "| recall, copy" in families.table({"results": results})
