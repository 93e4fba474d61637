"""POST /match with `like` and `unlike`: the answer, and what is refused before the work."""

from typing import Any

import pytest

TEXTS = {
    "ants": "Ants live in colonies. They find food by trails of pheromones that others follow.",
    "bees": "Bees live in hives. A dance of the waggle kind tells the others where flowers are.",
    "both": "Ants and bees live in colonies and hives. They tell others where food is.",
    "court": "The tribunal dismissed the appeal. The judgment of the court below stands.",
    "judge": "The judge heard the appeal. Counsel of the tribunal asked for costs.",
}


@pytest.fixture
def holding(make_client: Any) -> Any:
    client = make_client()
    documents = [{"id": name, "text": text} for name, text in TEXTS.items()]
    assert client.post("/index", json={"documents": documents}).status_code == 200
    return client


def ask(client: Any, **body: Any) -> Any:
    response = client.post("/match", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def test_stored_documents_and_texts_are_examples(holding: Any) -> None:
    found = ask(holding, like=[{"id": "ants"}, {"text": TEXTS["bees"]}], unlike=[{"id": "court"}])
    names = [item["id"] for item in found["matches"]]
    assert set(names) == {"bees", "both", "judge"}
    assert names[-1] == "judge"
    first = found["matches"][0]
    assert (len(first["like_scores"]), len(first["unlike_scores"])) == (2, 1)
    assert first["score"] <= max(first["like_scores"])
    assert (first["probability"], first["false_positive_rate"]) == (None, None)
    assert found["timings"]["encode"] > 0
    item = ask(holding, id="ants")["receipt"]
    assert found["receipt"]["tokens"] > 2 * item["tokens"]
    stored = ask(holding, like=[{"id": "ants"}, {"id": "bees"}])
    assert "encode" not in stored["timings"]


def test_a_match_is_explained_by_its_nearest_example(holding: Any) -> None:
    like = [{"text": TEXTS["court"]}, {"text": TEXTS["bees"]}]
    found = ask(holding, like=like, explain={"matches": 5, "passages": 1})
    explained = {item["id"]: item["explanation"] for item in found["matches"]}
    assert None not in explained.values()
    assert explained["bees"]["relation"] == explained["court"]["relation"] == "identical"
    for hit in found["matches"]:
        nearest = like[hit["like_scores"].index(max(hit["like_scores"]))]["text"]
        for passage in hit["explanation"]["passages"]:
            assert passage["left"]["text"] in nearest


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"like": [{"id": "ants"}], "id": "bees"}, "#"),
        ({"unlike": [{"id": "ants"}]}, "#"),
        ({"id": "ants", "unlike": [{"id": "bees"}]}, "#"),
        ({"like": [{}]}, "#/like/0"),
        ({"like": [{"id": "ants", "title": "Ants"}]}, "#/like/0"),
        ({"like": [{"id": "ants"}], "title": "Ants"}, "#"),
        ({"like": [{"id": "ants"}] * 20, "unlike": [{"id": "bees"}] * 13}, "#/like"),
        ({"like": [{"id": "ants"}], "min_probability": 0.5}, "#"),
        ({"like": [{"id": "ants"}], "max_false_positive_rate": 0.5}, "#"),
        ({"like": [{"id": "ants"}], "rerank": 5}, "#"),
        ({"like": [{"id": "ants"}], "explain": {"matches": 101}, "top_k": 101}, "#/explain"),
        ({"like": [{"text": "Ants."}, {"text": " "}]}, "#/like/1/text"),
    ],
)
def test_what_is_refused(holding: Any, body: dict[str, Any], field: str) -> None:
    response = holding.post("/match", json=body)
    assert response.status_code == 422
    assert field in {error["pointer"] for error in response.json()["errors"]}, response.text


def test_a_missing_example_is_named(holding: Any) -> None:
    body = {"like": [{"id": "ants"}], "unlike": [{"id": "nothing"}]}
    response = holding.post("/match", json=body)
    assert (response.status_code, "nothing" in response.text) == (404, True)
