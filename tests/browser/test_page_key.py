"""The page at / of a server that takes API keys."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from index.directory.data_directory import KEY_FILE
from service.keys import change_keys, split_token
from tests.kit.process_fixtures import Server, add_key, serving
from tests.kit.search_page_fixtures import BEES, DOCUMENTS, FAST, find, notice, titles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("locked")


@pytest.fixture(scope="module")
def locked(folder: Path) -> Iterator[Server]:
    """A server with documents and one key; the documents came before the key."""
    settings = {"alignment_budget_ms": 60_000, "max_queue_seconds": 60, "threads": 1}
    with serving(folder, folder / "data", FAST, **settings) as server:
        assert server.request("POST", "/index", {"documents": DOCUMENTS})[0] == 200
        add_key(folder / "data", "read")
        yield server


def give_key(page: Page, token: str) -> None:
    page.fill("#api-key", token)
    page.press("#api-key", "Enter")


def test_the_page_asks_for_a_key_and_goes_on_with_it(
    locked: Server, folder: Path, open_page: Callable[..., Page]
) -> None:
    page = open_page(locked)
    page.wait_for_selector("#key-form")  # the list of examples was refused
    page.fill("#text", BEES)
    page.press("#text", "Control+Enter")
    shown = notice(page)
    assert "A valid API key is required" in shown
    assert "at the top of this page" in shown
    assert page.evaluate("document.activeElement.id") == "api-key"
    give_key(page, add_key(folder / "data", "read"))
    page.wait_for_selector("#search-status >> text=/match/")  # the search went on by itself
    assert "The dance of bees" in titles(page)
    assert page.is_hidden("#key-form")
    page.reload()
    page.wait_for_selector("#examples")  # the tab has the key still
    assert page.is_hidden("#key-form")


def test_a_key_that_is_not_accepted_is_asked_for_again(
    locked: Server, folder: Path, open_page: Callable[..., Page]
) -> None:
    page = open_page(locked)
    page.wait_for_selector("#key-form")
    give_key(page, "a key")
    assert "not a key" in page.inner_text("#key-status")
    give_key(page, "lm_00000000_" + "A" * 43)
    page.wait_for_selector("#key-form >> text=/wrong, revoked or expired/")
    token = add_key(folder / "data", "read")
    give_key(page, token)
    page.wait_for_selector("#examples")
    find(page, BEES)
    parts = split_token(token)
    assert parts is not None
    change_keys(folder / "data" / KEY_FILE, lambda known: known.__delitem__(parts[0]))
    page.press("#text", "Control+Enter")
    page.wait_for_selector("#key-form >> text=/wrong, revoked or expired/")
