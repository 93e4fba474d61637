"""The buttons of feedback at the matches of the page at /, by mouse and by keyboard."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

from tests.kit.browser import complaints_of_axe
from tests.kit.process_fixtures import Server, add_key, serving
from tests.kit.search_page_fixtures import DOCUMENTS, FAST, HOSTILE_TITLE, KEEPER, find

QUERY = KEEPER[90:]
SETTINGS = {"alignment_budget_ms": 60_000, "max_queue_seconds": 60, "threads": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feedback")


@pytest.fixture(scope="module")
def taking(folder: Path) -> Iterator[Server]:
    """A server that takes feedback; the tests give it keys at the end."""
    with serving(folder, folder / "data", FAST, **SETTINGS) as server:
        assert server.request("POST", "/index", {"documents": DOCUMENTS})[0] == 200
        yield server


def kept(server: Server) -> list[tuple[str, int]]:
    page = server.request("GET", "/feedback")[1]["feedback"]
    return sorted((row["match"], row["grade"]) for row in page)


def buttons(page: Page, number: int) -> tuple[Locator, Locator]:
    card = page.locator(".match").nth(number)
    relevant, other = card.locator("button[aria-pressed]").all()
    return relevant, other


def pressed(page: Page, number: int) -> list[str | None]:
    return [button.get_attribute("aria-pressed") for button in buttons(page, number)]


def expect_notice(page: Page, number: int, text: str) -> None:
    page.locator(".match").nth(number).locator(f"[role=status] >> text=/{text}/").wait_for()


def test_verdicts_are_kept_changed_and_taken_back(
    taking: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(taking)
    find(page, QUERY)
    shown = page.locator(".match .id code").all_text_contents()
    relevant, other = buttons(page, 0)
    relevant.click()
    expect_notice(page, 0, "Kept")
    assert pressed(page, 0) == ["true", "false"]
    assert kept(taking) == [(shown[0], 1)]
    lines = taking.request("GET", "/feedback")[1]["feedback"]
    assert lines[0]["query"]["id"] is None
    other.focus()
    page.keyboard.press("Enter")
    page.locator("button[aria-pressed=true]", has_text="Not relevant").wait_for()
    assert pressed(page, 0) == ["false", "true"]
    assert kept(taking) == [(shown[0], 0)]
    page.keyboard.press("Space")
    expect_notice(page, 0, "Taken back")
    assert pressed(page, 0) == ["false", "false"]
    assert kept(taking) == []


def test_a_stored_document_is_the_query_of_its_verdicts(
    taking: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(taking)
    find(page, QUERY)
    page.locator(".match").first.get_by_role("button", name="Find what matches").click()
    page.wait_for_selector("#search-status >> text=/match/")
    page.wait_for_selector("[aria-pressed]")
    buttons(page, 0)[0].click()
    expect_notice(page, 0, "Kept")
    (stored,) = taking.request("GET", "/feedback")[1]["feedback"]
    assert stored["query"]["id"] in {"sea/keeper", "sea/keeper (copy)"}
    assert taking.request("DELETE", f"/feedback/{stored['id']}")[0] == 204


def test_each_button_says_which_match_it_is_about(
    taking: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(taking)
    find(page, QUERY)
    labels = [button.get_attribute("aria-label") for button in page.locator("[aria-pressed]").all()]
    assert len(labels) == len(set(labels)) == 2 * page.locator(".match").count()
    assert f"Relevant: {HOSTILE_TITLE}" in labels
    buttons(page, 0)[0].click()
    expect_notice(page, 0, "Kept")
    assert complaints_of_axe(page) == []
    buttons(page, 0)[0].click()
    expect_notice(page, 0, "Taken back")


def test_a_failure_is_said_and_changes_nothing(
    taking: Server, open_page: Callable[..., Page]
) -> None:
    page = open_page(taking)
    find(page, QUERY)
    page.route("**/feedback", lambda route: route.abort())
    buttons(page, 0)[0].click()
    expect_notice(page, 0, "Not kept: The server does not answer")
    assert pressed(page, 0) == ["false", "false"]


@pytest.mark.slow
def test_a_server_that_takes_none_is_not_asked(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    with serving(tmp_path, tmp_path / "data", FAST, max_feedback=0, **SETTINGS) as server:
        assert server.request("POST", "/index", {"documents": DOCUMENTS[:3]})[0] == 200
        page = open_page(server)
        find(page, QUERY)
        assert page.locator(".match").count() > 0
        assert page.locator("[aria-pressed]").count() == 0


def test_a_key_that_may_only_read_is_refused_with_its_scope(
    taking: Server, folder: Path, open_page: Callable[..., Page]
) -> None:
    token = add_key(folder / "data", "read")
    page = open_page(taking)
    page.wait_for_selector("#key-form")
    page.fill("#api-key", token)
    page.press("#api-key", "Enter")
    page.wait_for_selector("#examples")
    find(page, QUERY)
    buttons(page, 0)[1].click()
    expect_notice(page, 0, "Not kept: the API key does not have the scope write")
    assert pressed(page, 0) == ["false", "false"]
