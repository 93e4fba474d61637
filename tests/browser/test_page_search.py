"""The page at / in a real browser with the real server: from a document to why it matches."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.kit.browser import PageLog, save, wait_until
from tests.kit.calibrations import calibrated
from tests.kit.pdf_files import pdf
from tests.kit.process_fixtures import Server, serving
from tests.kit.search_page_fixtures import (
    BEES,
    DOCUMENTS,
    HOSTILE_TITLE,
    KEEPER,
    drop,
    find,
    notice,
    requests_of,
    titles,
)

QUERY = KEEPER[90:]


def fields(page: Page, number: int) -> str:
    return page.locator(".match").nth(number).inner_text()


def test_a_pasted_text_is_matched_with_scores_and_reasons(
    search_page: Page, search_server: Server, page_log: PageLog
) -> None:
    find(search_page, QUERY)
    _, answer = search_server.request("POST", "/match", {"text": QUERY, "collapse": True})
    assert titles(search_page)[0] == answer["matches"][0]["title"]
    assert len(titles(search_page)) == len(answer["matches"])
    shown, first = fields(search_page, 0), answer["matches"][0]
    assert "not calibrated" in shown
    search_page.locator(".match .details summary").first.click()
    shown = fields(search_page, 0)
    receipt = search_page.inner_text("#receipt")
    assert "There are no probabilities: fewer than 100 documents." in receipt
    assert f"score\n{first['score']:.3f}" in shown or f"score {first['score']:.3f}" in shown
    for term in first["terms"]:
        assert term["term"] in shown
    assert "All of the document was read." in receipt
    assert page_log.complaints == []
    assert all(url.startswith(f"{search_server.url}/") for url in page_log.requests)


def test_what_scores_no_more_than_chance_is_folded_away(
    open_page: Callable[..., Page], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    checkpoint, data = calibrated(tiny_checkpoint, tmp_path)
    with serving(tmp_path, data, checkpoint, alignment_budget_ms=60_000) as server:
        server.request("POST", "/index", {"documents": DOCUMENTS})
        page = open_page(server)
        page.uncheck("#collapse")
        find(page, BEES)
        assert titles(page)[0] == "The dance of bees"
        shown = re.search(r"(\d+|>99)\s%\s+likely to match", fields(page, 0))
        assert shown is not None
        assert "already in your corpus" in fields(page, 0)
        page.locator(".title").first.click()
        frame = page.frame_locator("#comparison iframe")
        assert frame.locator(".figures").inner_text().split() == shown[0].split()
        frame.locator(".views a >> nth=1").click()
        assert "0 missing from the other text" in frame.locator("#differences").inner_text()
        page.click("#close-comparison")
        assert page.inner_text("#search-status").startswith("1 match in")
        folded = page.locator("#match-list > li > details:not(.details) > summary")
        assert folded.inner_text() == "4 documents no closer than random ones"
        assert page.locator(".match:visible").count() == 1
        folded.click()
        assert page.locator(".match:visible").count() == 5
        find(page, "Zyzzyva quokka frobnicate blorp wibble lamp.")
        assert page.inner_text("#search-status").startswith("0 matches in")
        assert notice(page).startswith("Nothing here resembles this document.")


def test_copies_and_versions_are_one_match_that_names_the_others(search_page: Page) -> None:
    find(search_page, QUERY)
    family = search_page.locator(".match", has_text="Copies and versions of it: 1")
    assert family.count() == 1
    family.locator("summary").first.click()
    assert "sea/keeper (copy)" in family.inner_text()
    search_page.uncheck("#collapse")
    find(search_page, QUERY)
    assert {"The keeper", "The keeper, again"} <= set(titles(search_page))


def test_a_file_is_read_here_with_its_title_and_searched(search_page: Page, tmp_path: Path) -> None:
    file = tmp_path / "dance.md"
    file.write_text(f"# How  they dance\n\n{BEES}", encoding="utf-16")
    with requests_of(search_page, "/match") as sent:
        search_page.set_input_files("#file", file)
        search_page.wait_for_selector(".match")
    assert sent[0]["title"] == "How they dance"
    assert sent[0]["text"] == file.read_text(encoding="utf-16")
    assert titles(search_page)[0] == "The dance of bees"
    assert "dance.md" in search_page.inner_text("#source")


@pytest.mark.parametrize(
    ("name", "content", "title"),
    [
        ("dance.pdf", pdf([BEES[:80]], info="/Title (Bees live in hives)"), "Bees live in hives"),
        ("dance.txt", BEES[:80].encode("utf-16-le"), BEES[:80]),
        (
            "dance.html",
            f"<meta charset=windows-1252><title>Bienen-Tänze</title><p>{BEES[:80]}".encode(
                "cp1252"
            ),
            "Bienen-Tänze",
        ),
    ],
    ids=["pdf", "UTF-16 without a mark", "another encoding"],
)
def test_a_file_that_no_browser_reads_is_read_by_the_server(
    search_page: Page, name: str, content: bytes, title: str
) -> None:
    file = {"name": name, "mimeType": "", "buffer": content}
    with requests_of(search_page, "/match") as sent:
        search_page.set_input_files("#file", file)  # type: ignore[arg-type]
        search_page.wait_for_selector(".match")
    assert (sent[0]["text"], sent[0]["title"]) == (BEES[:80], title)
    assert titles(search_page)[0] == "The dance of bees"
    assert name in search_page.inner_text("#source")


def test_a_long_file_is_matched_whole_and_shown_in_part(search_page: Page) -> None:
    text = BEES * 400
    search_page.route("**/match", lambda _: None)  # it is never answered, so it can be cancelled
    with requests_of(search_page, "/match") as sent:
        drop(search_page, ("long.txt", text))
        search_page.wait_for_selector("#chosen:visible")
        search_page.click("#cancel")
    assert sent[0]["text"] == text
    assert search_page.locator("#text").is_hidden()
    assert "Bees live in hives" in search_page.inner_text("#chosen")
    assert len(search_page.inner_text("#chosen")) < 500
    search_page.click("#clear")
    assert search_page.locator("#text").is_visible()
    assert search_page.input_value("#text") == ""


def test_a_long_text_that_is_pasted_is_taken_as_a_file_is(search_page: Page) -> None:
    search_page.evaluate(
        """(text) => {
          const clipboardData = new DataTransfer();
          clipboardData.setData("text/plain", text);
          const pasted = new ClipboardEvent("paste", { clipboardData, cancelable: true });
          document.querySelector("#text").dispatchEvent(pasted);
        }""",
        BEES * 400,
    )
    assert search_page.locator("#text").is_hidden()
    assert search_page.evaluate("document.activeElement.id") == "find"
    assert "words" in search_page.inner_text("#source")


def test_html_is_read_as_text_and_nothing_in_it_runs(
    search_page: Page, page_log: PageLog, tmp_path: Path
) -> None:
    file = tmp_path / "dance.html"
    file.write_text(
        "<title>Of &amp; bees</title><style>p{color:red}</style><script>alert(1)</script>"
        "<body onload='alert(2)'><h1 style='color:red'>Dances</h1>"
        f"<p>{BEES}</p><ul><li>one<li>two</ul><img src='http://127.0.0.1:9/x.png' "
        "onerror='alert(3)'><pre>a\n  b</pre>"
    )
    page_log.requests.clear()
    search_page.set_input_files("#file", file)
    search_page.wait_for_selector(".match")
    text = search_page.input_value("#text")
    assert text == f"Dances\n\n{BEES.strip()}\n\none\ntwo\n\na\nb"
    assert search_page.input_value("#title") == "Of & bees"
    # The parser does nothing with style and script; the browser says that it could not have.
    blocked = "violates the following Content Security Policy directive"
    assert [text for text in page_log.complaints if blocked not in text] == []
    assert not [url for url in page_log.requests if "x.png" in url]


def test_filters_become_those_of_the_request(search_page: Page) -> None:
    rows = [
        ("year", "at least", "2000", {"field": "year", "range": {"gte": 2000}}),
        ("year", "at most", "2021", {"field": "year", "range": {"lte": 2021}}),
        ("kind", "is not", '"law"', {"not": {"field": "kind", "equal": "law"}}),
        ("year", "is one of", '2001, "2001", 2020', {"field": "year", "in": [2001, "2001", 2020]}),
        ("retracted", "is missing", "", {"field": "retracted", "exists": False}),
    ]
    for number, (field, operator, value, _) in enumerate(rows, start=1):
        search_page.click("#add-filter")
        search_page.get_by_label(f"Filter {number}: field").fill(field)
        search_page.get_by_label(f"Filter {number}: operator").select_option(operator)
        if value:
            search_page.get_by_label(f"Filter {number}: value").fill(value)
    with requests_of(search_page, "/match") as sent:
        find(search_page, QUERY)
    assert sent[0]["filter"] == {"and": [expected for *_, expected in rows]}
    assert set(titles(search_page)) == {"The keeper, again", "The dance of bees"}
    for _ in rows:
        search_page.click("button[aria-label='Remove filter 1']")
    find(search_page, QUERY)
    assert len(titles(search_page)) == len(DOCUMENTS) - 1  # two are of one family


def test_a_value_of_a_match_becomes_a_filter_with_its_type(search_page: Page) -> None:
    find(search_page, QUERY)
    details = search_page.locator(".match", has_text="A late notice").locator(".details summary")
    details.click()
    search_page.get_by_label("Filter by year: 2021").click()
    with requests_of(search_page, "/match") as sent:
        find(search_page, QUERY)
    assert sent[0]["filter"] == {"and": [{"field": "year", "equal": 2021}]}
    assert titles(search_page) == ["A late notice"]


def test_mode_and_number_are_those_of_the_form(search_page: Page) -> None:
    search_page.check("input[value=lexical]")
    search_page.fill("#top-k", "1")
    with requests_of(search_page, "/match") as sent:
        find(search_page, BEES)
    assert (sent[0]["mode"], sent[0]["top_k"]) == ("lexical", 1)
    assert titles(search_page) == ["The dance of bees"]


def test_from_a_drop_to_a_comparison_and_back_by_keyboard_alone(
    search_page: Page, page_log: PageLog, tmp_path: Path
) -> None:
    drop(search_page, ("query.txt", QUERY))
    search_page.wait_for_selector(".match")
    for key in ("Tab", "Enter", "Tab", "ArrowDown", "ArrowUp", "Enter"):  # by "Go to the matches"
        search_page.keyboard.press(key)
    frame = search_page.frame_locator("#comparison iframe")
    frame.locator("#left mark").first.wait_for()
    assert "Your document and The keeper" in search_page.inner_text("#comparison-title")
    assert frame.locator("#status").inner_text().startswith("1 of ")
    wait_until(search_page, "document.activeElement.tagName === 'IFRAME'")
    search_page.keyboard.press("?")  # a key of the comparison itself
    frame.locator("#help[open]").wait_for()
    search_page.keyboard.press("Escape")
    frame.locator("#help[open]").wait_for(state="hidden")
    search_page.keyboard.press("d")
    frame.locator("#differences").wait_for()
    search_page.keyboard.press("d")
    assert "trimmed the wick" in frame.locator("#left mark.on").first.inner_text()
    saved = save(search_page, "#save-comparison", tmp_path / "saved")
    assert saved.name == "comparison with sea_keeper.html"
    assert "<!doctype html>" in saved.read_text(encoding="utf-8")
    frame.locator("#right").click()
    search_page.keyboard.press("Escape")
    wait_until(search_page, "!document.querySelector('#comparison').open")
    search_page.locator("#comparison iframe").wait_for(state="detached")  # "close" comes later
    wait_until(search_page, "document.activeElement.className === 'title'")
    assert page_log.complaints == []


def test_a_stored_document_is_matched_without_a_text(search_page: Page) -> None:
    with requests_of(search_page, "/match") as sent:
        search_page.click("#examples button >> text='The dance of bees'")
        search_page.wait_for_selector(".match")
        search_page.get_by_label("Find what matches A late notice").click()
        search_page.wait_for_selector("#chosen >> text='A late notice'")
        search_page.wait_for_selector(".match >> text='The dance of bees'")
    assert [body["id"] for body in sent] == ["bees", "law/tribunal"]
    search_page.locator(".title", has_text="The dance of bees").click()
    frame = search_page.frame_locator("#comparison iframe")
    assert frame.locator("#left h2").inner_text() == "A late notice"


def test_what_documents_say_stays_text(search_page: Page, page_log: PageLog) -> None:
    find(search_page, "the lamp of the lighthouse <script>alert(0)</script>")
    shown = [title.replace("[U+202E]", "\u202e") for title in titles(search_page)]
    assert HOSTILE_TITLE in shown
    assert search_page.locator(".match img, .match script, .match b[onclick]").count() == 0
    search_page.locator(".match", has_text="<img").locator(".details summary").click()
    search_page.get_by_label("Filter by <i>field</i>").click()
    with requests_of(search_page, "/match") as sent:
        find(search_page, QUERY)
    (condition,) = sent[0]["filter"]["and"]
    assert condition == {
        "field": "<i>field</i>",
        "equal": DOCUMENTS[-1]["metadata"]["<i>field</i>"],
    }
    assert len(titles(search_page)) == 1
    assert page_log.complaints == []
