"""A stored document scores the same by its id and by its text, and unknown words count."""

from pathlib import Path

import pytest

from index.corpus.demo import write_stdlib_corpus
from index.corpus.reader import read_corpus
from index.document import Document
from tests.kit.service_fixtures import Client

FOUR = {
    "volcanoes": "A volcano erupts when magma rises and gas escapes. Ash and molten rock bury the "
    "slopes, and new land forms where they cool.",
    "bread": "Mix flour and water and salt and yeast, and let the dough rest. Bake the loaf and "
    "let it cool.",
    "lava flows": "Molten rock runs down the slopes of a volcano as lava. It cools to basalt.",
    "chess": "The king and the rook castle. A pawn that reaches the last rank is a queen.",
}
GERMAN = {
    "solar": "Die Bundesregierung fördert Solaranlagen auf Dächern. Hausbesitzer erhalten eine "
    "Einspeisevergütung für Strom aus Photovoltaik.",
    "wind": "Windkraftanlagen vor der Küste liefern Strom für Millionen Haushalte. Die "
    "Bundesregierung beschleunigt Genehmigungen.",
    "recht": "Das Gericht wies die Klage ab, weil der Kläger die Frist nicht eingehalten hatte.",
    "oper": "Die Oper eröffnet die Spielzeit mit einer Neuinszenierung. Das Orchester spielt mit.",
}


def search(client: Client, query: dict[str, str], mode: str) -> dict[str, float]:
    """Return the scores of all documents that are found, best first, without the query."""
    answer = client.post("/match", json={**query, "mode": mode, "top_k": 100})
    assert answer.status_code == 200, answer.text
    return {found["id"]: found["score"] for found in answer.json()["matches"]}


def index(client: Client, documents: list[dict[str, str]]) -> None:
    answer = client.post("/index", json={"documents": documents})
    assert answer.status_code == 200, answer.text


def python_modules(folder: Path) -> list[dict[str, str]]:
    """Return documents of the demo, cut short, with titles that others name."""
    write_stdlib_corpus(folder / "stdlib.jsonl")
    found = [item for item in read_corpus(folder / "stdlib.jsonl") if isinstance(item, Document)]
    return [{"id": item.id, "text": item.text[:700], "title": item.id} for item in found[::16]]


@pytest.mark.parametrize("name", ["four", "german", "python"])
def test_by_id_and_by_text_a_document_scores_the_same(
    name: str, client: Client, tmp_path: Path
) -> None:
    documents = (
        python_modules(tmp_path)
        if name == "python"
        else [
            {"id": key, "text": text, "title": ""}
            for key, text in (FOUR if name == "four" else GERMAN).items()
        ]
    )
    index(client, documents)
    for document in documents[:6]:
        text = {"text": document["text"], "title": document["title"]}
        for mode in ("lexical", "hybrid", "semantic"):
            by_text = search(client, text, mode)
            assert by_text.pop(document["id"]) == pytest.approx(1.0, abs=1e-5)
            by_id = search(client, {"id": document["id"]}, mode)
            assert by_id == pytest.approx(by_text, abs=1e-6)


def test_the_first_four_documents_of_anyone(client: Client) -> None:
    index(client, [{"id": name, "text": text} for name, text in FOUR.items()])
    found = search(client, {"id": "volcanoes"}, "lexical")
    assert next(iter(found)) == "lava flows"
    assert found["lava flows"] > 0.15
    assert found.get("bread", 0.0) < found["lava flows"] / 4
    assert "chess" not in found
    assert search(client, {"text": "and the, they!"}, "lexical") == {}
