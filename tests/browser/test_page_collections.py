"""The page at / of a server with several collections."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page

from tests.kit.process_fixtures import Server, add_key, serving
from tests.kit.search_page_fixtures import BEES, FAST, KEEPER, TRIBUNAL, find, titles

PAPERS = "/collections/papers"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with one document in the default collection and two in `papers`."""
    folder = tmp_path_factory.mktemp("several")
    settings = {"alignment_budget_ms": 60_000, "max_queue_seconds": 60, "threads": 1}
    with serving(folder, folder / "data", FAST, **settings) as server:
        assert server.request("PUT", PAPERS)[0] == 201
        texts = {"": {"bees": BEES}, PAPERS: {"keeper": KEEPER, "tribunal": TRIBUNAL}}
        for prefix, documents in texts.items():
            body = [{"id": n, "title": n.title(), "text": t} for n, t in documents.items()]
            assert server.request("POST", f"{prefix}/index", {"documents": body})[0] == 200
        yield server


def test_a_collection_is_chosen_searched_and_kept(
    several: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(several)
    page.wait_for_selector("#collection-choice:not([hidden])")
    assert page.locator("#collection option").all_inner_texts() == ["default", "papers"]
    assert page.input_value("#collection") == "default"
    find(page, KEEPER)
    assert titles(page) == ["Bees"]
    page.select_option("#collection", "papers")
    page.wait_for_selector("#index-summary >> text=2 documents")
    assert titles(page) == []
    page.wait_for_selector("#examples >> text=Tribunal")
    assert page.input_value("#text") == KEEPER  # what was pasted is searched in the other one
    find(page, KEEPER)
    assert titles(page)[0] == "Keeper"
    page.reload()
    page.wait_for_selector("#index-summary >> text=2 documents")
    assert page.input_value("#collection") == "papers"
    page.click("#index-button")
    page.wait_for_selector("#index-state >> text=every document")
    page.wait_for_selector("#jobs >> text=None yet.")


def test_a_stored_document_of_another_collection_is_not_kept(
    several: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(several)
    page.wait_for_selector("#examples >> text=Bees")
    page.click("#examples button")
    page.wait_for_selector("#chosen:not([hidden])")
    page.select_option("#collection", "papers")
    page.wait_for_selector("#chosen", state="hidden")


def test_a_key_that_is_bound_to_a_collection_shows_that_one(
    tmp_path_factory: pytest.TempPathFactory, open_page: Callable[..., Page]
) -> None:
    folder = tmp_path_factory.mktemp("bound")
    with serving(folder, folder / "data", FAST, threads=1) as server:
        assert server.request("PUT", PAPERS)[0] == 201
        body = {"documents": [{"id": "keeper", "title": "Keeper", "text": KEEPER}]}
        assert server.request("POST", f"{PAPERS}/index", body)[0] == 200
        token = add_key(folder / "data", "read", collection="papers")
        page = open_page(server)
        page.wait_for_selector("#key-form:not([hidden])")
        page.fill("#api-key", token)
        page.press("#api-key", "Enter")
        page.wait_for_selector("#index-summary >> text=1 document")
        assert page.is_hidden("#collection-choice")
        find(page, KEEPER)
        assert titles(page) == ["Keeper"]
