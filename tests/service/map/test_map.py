"""GET /map: where documents are, their clusters and colours, and how it follows the store."""

from typing import Any

import numpy as np
import pytest

from encoder.arrays import Float32
from index.progress import SilentProgress
from index.store.records import Facet
from service.map.layout import between, lay_out
from service.map.logic import (
    MAP_FILE,
    OTHER,
    SIDE,
    coloured,
    divide,
    keep_map,
    make_map,
    quantised,
    read_kept,
)
from tests.kit.problems import problem
from tests.kit.waiting import wait_until


def unit(vectors: Any) -> Float32:
    found = np.asarray(vectors, dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def made(client: Any, query: str = "") -> dict[str, Any]:
    """Ask until the map is that of the present documents."""
    answers = []

    def current() -> bool:
        answers.append(client.get(f"/map{query}").json())
        return answers[-1]["progress"] is None

    wait_until(current, "the map is made")
    return dict(answers[-1])


@pytest.mark.parametrize("size", [40, 88])  # forces of all pairs, and on a grid
def test_groups_stay_together_and_apart(size: int) -> None:
    random = np.random.default_rng(3)
    groups = np.repeat(np.arange(3), size)
    vectors = unit(np.eye(8)[groups] + random.normal(scale=0.15, size=(len(groups), 8)))
    places = lay_out(vectors, lambda _: None)
    for found in (places, between(vectors, vectors[::4], places[::4])):
        distances = np.square(found[:, None] - found[None]).sum(axis=-1)
        np.fill_diagonal(distances, np.inf)
        near = np.argsort(distances, axis=1)[:, :10]
        assert np.mean(groups[near] == groups[:, None]) > 0.95
    assert np.array_equal(places, lay_out(vectors, lambda _: None))


@pytest.mark.parametrize("number", [0, 1, 2, 15, 16, 300])
def test_equal_documents_have_places_whatever_their_number(number: int) -> None:
    places = lay_out(unit(np.ones((number, 4))), lambda _: None)
    assert places.shape == (number, 2)
    assert np.isfinite(places).all()
    on_map = quantised(places)
    assert ((on_map >= 0) & (on_map < SIDE)).all()
    centres, labels = divide(on_map)
    assert len(labels) == number
    assert set(labels.tolist()) <= set(range(len(centres)))


def test_documents_are_coloured_by_the_frequent_values() -> None:
    facet = Facet("kind", 4, [("law", 2), ("story", 1), (1, 1)])
    kinds = ["story", ["law", "tax"], "law", True, {"a": 1}]
    found = coloured(facet, [{"kind": kind} for kind in kinds] + [{}])
    named = [found.values[n] if n != OTHER else "" for n in found.of]
    assert named == ["story", "law", "law", "", "", ""]


def test_the_map_has_every_document_and_follows_the_store(filled: Any) -> None:
    first = made(filled)
    assert sorted(first["ids"]) == sorted(["ants", "bees", "tax law", "a/b c/ü?#%"])
    assert first["documents"] == len(first["x"]) == len(first["y"]) == len(first["cluster"]) == 4
    assert all(0 <= place < SIDE for place in [*first["x"], *first["y"]])
    assert first["clusters"][0]["words"]
    tag = filled.get("/map").headers["ETag"]
    assert filled.get("/map", headers={"If-None-Match": tag}).status_code == 304
    filled.delete("/documents/bees")
    second = made(filled)
    assert "bees" not in second["ids"]
    assert second["sequence"] > first["sequence"]
    assert filled.get("/map", headers={"If-None-Match": tag}).status_code == 200


def test_a_field_colours_and_an_unknown_one_is_refused(filled: Any) -> None:
    for number in range(3):
        body = {"id": f"new {number}", "text": f"Rivers {number}.", "metadata": {"kind": "river"}}
        filled.post("/index", json={"documents": [body]})
    shown = made(filled, "?field=kind")
    assert "kind" in shown["fields"]
    named = dict(zip(shown["ids"], shown["value"], strict=True))
    assert shown["values"][named["new 0"]] == "river"
    assert named["ants"] == OTHER
    refused = problem(filled.get("/map?field=absent"), 422, "invalid-input")
    assert refused["errors"][0]["parameter"] == "field"
    assert "kind" in refused["errors"][0]["detail"]


def test_the_layout_is_kept_for_the_next_start(
    filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(filled)
    store = filled.app.state.engine.default.data.store
    kept = store.path.parent / MAP_FILE
    wait_until(kept.exists, "the layout is kept")
    with monkeypatch.context() as without:
        without.setattr("service.map.logic.lay_out", None)  # it would fail
        again = make_map(store, read_kept(store), lambda _: None)
        keep_map(store, SilentProgress())  # no document is newer
    assert list(again.ids) == first["ids"]
    assert again.places[:, 0].tolist() == first["x"]
    assert [list(cluster.words) for cluster in again.clusters] == [
        cluster["words"] for cluster in first["clusters"]
    ]
    kept.write_text(kept.read_text().replace(store.fingerprint, "another"))
    assert read_kept(store) is None
    kept.write_text("damaged")
    assert read_kept(store) is None
    keep_map(store, SilentProgress())
    assert read_kept(store) is not None


def test_an_empty_collection_has_an_empty_map(empty: Any) -> None:
    assert made(empty)["ids"] == []


def test_a_part_of_a_large_collection_is_laid_out(
    empty: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.map.logic.MAX_LANDMARKS", 6)
    documents = [{"id": f"d{n}", "text": f"Text {n} on rivers."} for n in range(9)]
    empty.post("/index", json={"documents": documents})
    found = made(empty)
    assert sorted(found["ids"]) == [f"d{n}" for n in range(9)]
    assert len(found["x"]) == len(found["cluster"]) == 9
