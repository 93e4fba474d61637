"""The page at / when something is wrong: with the file, the request, the index or the server."""

import json
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.kit import waiting
from tests.kit.browser import wait_until
from tests.kit.process_fixtures import Server, serving
from tests.kit.search_page_fixtures import (
    BEES,
    KEEPER,
    TRIBUNAL,
    drop,
    drop_folder,
    find,
    notice,
    requests_of,
    titles,
)

GIGABYTE = 2**30
FILES = 20  # of a folder that is being added when something happens


# Bees, which are two units of UTF-16 each and one character.
DROP_LONG = """() => {
  const carried = new DataTransfer();
  carried.items.add(new File(["🐝".repeat(2000001)], "bees.txt"));
  document.body.dispatchEvent(
    new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
}"""


@contextmanager
def paused(server: Server) -> Iterator[None]:
    """Let a server accept connections and answer nothing."""
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def test_without_a_document_the_page_says_what_to_do(search_page: Page) -> None:
    assert "appear here" in search_page.inner_text("#matches")
    with requests_of(search_page, "/match") as sent:
        search_page.click("#find")
        assert "There is no document yet" in notice(search_page, "#text-notice")
    assert search_page.evaluate("document.activeElement.id") == "text"
    assert sent == []


def test_a_file_of_a_gigabyte_is_refused_before_it_is_read(
    search_page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "huge.txt"
    with file.open("wb") as hole:
        hole.truncate(GIGABYTE)
    search_page.evaluate("() => { Blob.prototype.arrayBuffer = () => { window.wasRead = true; }; }")
    with requests_of(search_page, "/match") as sent:
        search_page.set_input_files("#file", file)
        shown = notice(search_page, "#text-notice")
    assert "The file is too large" in shown
    assert "huge.txt has 1.0 GiB; the limit (max_body_bytes) is 16 MiB." in shown
    assert search_page.evaluate("window.wasRead") is None
    assert sent == []


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("paper.pdf", "%PDF-1.7", "paper.pdf: the file is not a readable PDF"),
        ("picture.png", "x", "The page cannot read this file"),
        ("README", "x", "The page cannot read this file"),
        ("corpus.jsonl", "{}", "This is a corpus, not a document"),
        ("binary.txt", "a\0b", "binary.txt: the file is not text but has control characters"),
        ("empty.md", " \n", "empty.md has no text"),
    ],
    ids=["pdf", "picture", "no suffix", "corpus", "zero bytes", "empty"],
)
def test_a_file_of_the_wrong_kind_is_named_with_what_is_read(
    search_page: Page, name: str, content: str | bytes, expected: str
) -> None:
    data = content.encode() if isinstance(content, str) else content
    upload = {"name": name, "mimeType": "", "buffer": data}
    search_page.set_input_files("#file", upload)  # type: ignore[arg-type]
    assert expected in notice(search_page, "#text-notice")
    assert search_page.input_value("#text") == ""


def test_of_two_drops_while_a_search_runs_the_last_one_counts(
    search_page: Page, search_server: Server
) -> None:
    abandoned: list[str] = []
    search_page.on("requestfailed", lambda request: abandoned.append(request.post_data or ""))
    find(search_page, KEEPER)  # the limits are known from now on
    with paused(search_server):
        for name, text in (("law.txt", TRIBUNAL), ("bees.txt", BEES)):
            drop(search_page, (name, text))
            search_page.wait_for_selector(f"#source >> text={name}")
            search_page.wait_for_selector("#cancel:visible")
    search_page.wait_for_selector(".match")
    assert titles(search_page)[0] == "The dance of bees"
    assert search_page.locator("#cancel").is_hidden()
    assert len(abandoned) == 1
    assert json.loads(abandoned[0])["text"] == TRIBUNAL


def test_a_slow_answer_is_told_and_can_be_cancelled(
    search_page: Page, search_server: Server
) -> None:
    find(search_page, BEES)
    with paused(search_server):
        search_page.press("#text", "Control+Enter")
        search_page.wait_for_selector("#search-status >> text='Reading the document …'")
        search_page.wait_for_selector("#search-status >> text=/Still reading/")
        assert int(search_page.inner_text("#elapsed").removesuffix(" s")) >= 3
        search_page.keyboard.press("Escape")
        assert search_page.inner_text("#search-status") == "Cancelled."
    find(search_page, BEES)
    assert titles(search_page)[0] == "The dance of bees"


def test_a_refusal_names_the_field_and_the_limit(search_page: Page) -> None:
    search_page.fill("#text", BEES)
    search_page.fill("#top-k", "5000")
    search_page.click("#find")
    shown = notice(search_page)
    assert "A field is invalid" in shown
    assert "Matches: Input should be less than or equal to 1000 (limit: 1,000)" in shown
    assert "Request " in shown
    assert search_page.locator("#search-notice button").count() == 0  # trying again would not help


def test_a_refused_filter_is_marked_where_it_is(search_page: Page) -> None:
    search_page.fill("#text", BEES)
    for number, value in ((1, "2020"), (2, "x" * 600)):
        search_page.click("#add-filter")
        search_page.get_by_label(f"Filter {number}: field").fill("year")
        search_page.get_by_label(f"Filter {number}: value").fill(value)
    search_page.click("#find")
    assert "Filter 2: is longer than 512 characters (limit: 512)" in notice(search_page)
    invalid = search_page.locator(".filter:has([aria-invalid=true])")
    assert invalid.count() == 1
    assert invalid.get_by_label("Filter 2: value").count() == 1
    search_page.get_by_label("Filter 2: value").fill("")
    search_page.click("#find")
    search_page.wait_for_selector("#filter-notice >> text='Filter 2 needs a value.'")


def test_a_text_that_is_too_long_is_refused_before_it_is_sent(search_page: Page) -> None:
    with requests_of(search_page, "/match") as sent:
        search_page.evaluate(DROP_LONG)
        assert "2,000,001 characters; the limit (max_text_characters) is 2,000,000" in notice(
            search_page, "#text-notice"
        )
    assert sent == []


def test_filters_that_nothing_passes_are_said_to_be_the_reason(search_page: Page) -> None:
    search_page.click("#add-filter")
    search_page.get_by_label("Filter 1: field").fill("nothing")
    search_page.get_by_label("Filter 1: operator").select_option("is there")
    find(search_page, BEES)
    assert "No document passes the filters" in notice(search_page)


@contextmanager
def occupied(server: Server, places: int) -> Iterator[None]:
    """Take places of active requests with requests whose bodies do not arrive."""
    head = "POST /match HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with ExitStack() as stack:
        for _ in range(places):
            connection = socket.create_connection(("127.0.0.1", server.port))
            stack.enter_context(connection)
            connection.sendall(f"{head}Content-Length: 9\r\n\r\n".encode())
        yield


def upload(page: Page, file: Path, lines: Sequence[Mapping[str, str]]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    page.set_input_files("#corpus", file)


@pytest.fixture(scope="module")
def small_server(
    tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """An empty server that serves a client two requests at a time; the last test ends it."""
    folder = tmp_path_factory.mktemp("small-server")
    with serving(folder, folder / "data", tiny_checkpoint, max_active_requests=4) as server:
        yield server


def test_an_empty_index_is_filled_and_the_job_is_followed(
    open_page: Callable[..., Page], small_server: Server, tmp_path: Path
) -> None:
    page = open_page(small_server)
    find(page, BEES)
    assert "There are no documents yet" in notice(page)
    page.click("#index-button")
    page.wait_for_selector("#jobs >> text='None yet.'")
    lines = [{"id": "bees", "text": BEES}, {"id": "law", "text": ""}, {"id": "sea", "text": KEEPER}]
    upload(page, tmp_path / "corpus.jsonl", lines)
    page.wait_for_selector("#jobs >> text=/done, 100.%, 2 of 3 documents indexed, 1 refused/")
    assert "line 2, #/text: is empty" in page.inner_text("#jobs")
    wait_until(page, "document.querySelector('#index-summary').textContent[0] === '2'")
    state = page.inner_text("#index-state")
    for name in ("Documents", "Model", "Found, of the best 10", "every document"):
        assert name in state
    page.keyboard.press("Escape")
    find(page, BEES)
    assert titles(page)[0] == "bees"


def test_an_upload_and_a_job_can_be_cancelled(
    open_page: Callable[..., Page], small_server: Server, tmp_path: Path
) -> None:
    page = open_page(small_server)
    page.click("#index-button")
    page.wait_for_selector("#jobs li")
    book = BEES * 100_000  # more than the buffers of a connection hold
    with paused(small_server):
        upload(page, tmp_path / "sent.jsonl", [{"id": "book", "text": book}])
        drop(page, ("again.jsonl", '{"id": "a", "text": "b"}'), target="#index-panel")
        assert "One upload at a time" in notice(page, "#upload-notice")
        page.click("#cancel-upload")
        page.wait_for_selector("#upload-status >> text='Cancelled.'")
    many = [{"id": f"{number}", "text": f"{number} {BEES}"} for number in range(5_000)]
    upload(page, tmp_path / "job.jsonl", many)
    page.click("#jobs button:visible")
    page.wait_for_selector("#jobs >> text=/^cancelled, /")
    assert page.locator("#jobs button:visible").count() == 0


def test_a_folder_is_added_file_by_file(
    open_page: Callable[..., Page], small_server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "papers"
    (folder / "old").mkdir(parents=True)
    (folder / "bees.txt").write_text(f"Bees\n\n{BEES}")
    (folder / "old" / "light-house_keeper.html").write_text(f"<p>{KEEPER}")
    (folder / "old" / "broken.pdf").write_text("%PDF")
    (folder / "empty.md").touch()
    (folder / "picture.png").write_bytes(b"PNG")
    (folder / ".hidden.txt").write_text("hidden")
    with (folder / "huge.txt").open("wb") as hole:
        hole.truncate(GIGABYTE)
    page = open_page(small_server)
    drop_folder(page, folder)
    page.wait_for_selector("#upload-status >> text='2 files added, 4 skipped.'")
    page.click("#skipped summary")
    skipped = page.inner_text("#skipped")
    too_large = "huge.txt: has 1.0 GiB; the limit (max_body_bytes) is 16 MiB."
    for name in ("old/broken.pdf", "empty.md", "picture.png: is of a kind", too_large):
        assert name in skipped
    held = stored(small_server)
    page.set_input_files("#folder", folder)
    page.wait_for_selector("#upload-status >> text='0 files added, 2 unchanged, 4 skipped.'")
    assert stored(small_server) == held
    listed = small_server.request("GET", "/documents?limit=100")[1]["documents"]
    titles = {document["id"]: document["title"] for document in listed}
    assert titles["bees.txt"] == "Bees"
    assert "old/light-house_keeper.html" in titles
    assert not {"empty.md", ".hidden.txt"} & titles.keys()


def stored(server: Server) -> int:
    """How many documents a server has."""
    return int(server.request("GET", "/readyz")[1]["documents"])


def begin_adding(page: Page, folder: Path) -> None:
    """Drop a folder of many files on the page, and wait until some of them are stored."""
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{folder.name} {number}.txt").write_text(f"{folder.name} {number}. {BEES}")
    drop_folder(page, folder)
    page.wait_for_selector(f"#upload-status >> text=/^[1-9]\\d* of {FILES} files/")


def test_an_addition_goes_on_where_the_network_failed(
    open_page: Callable[..., Page], small_server: Server, tmp_path: Path
) -> None:
    page = open_page(small_server)
    held = stored(small_server)
    begin_adding(page, tmp_path / "network")
    page.context.set_offline(True)
    assert "The server does not answer" in notice(page, "#upload-notice")
    page.context.set_offline(False)
    page.click("#upload-notice button")
    # An answer may be what was lost: its document is stored already.
    page.wait_for_selector(f"#upload-status >> text=/^({FILES} f|{FILES - 1} f.*, 1 unch)/")
    assert stored(small_server) == held + FILES


def test_a_page_that_is_closed_leaves_what_was_complete(
    open_page: Callable[..., Page], small_server: Server, tmp_path: Path
) -> None:
    page = open_page(small_server)
    held = stored(small_server)
    begin_adding(page, tmp_path / "closed")
    page.close()
    assert held < stored(small_server) < held + FILES


def test_of_an_upload_whose_page_is_closed_nothing_is_left(
    chromium: Browser, small_server: Server, tmp_path: Path
) -> None:
    received = small_server.log.parent / "data" / "uploads"
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 100_000}
    for _ in range(3):  # a client has two places
        page = chromium.new_page()
        page.goto(f"{small_server.url}/")
        page.context.new_cdp_session(page).send("Network.emulateNetworkConditions", slow)
        page.click("#index-button")
        upload(page, tmp_path / "sent.jsonl", [{"id": "book", "text": BEES * 100_000}])
        waiting.wait_until(lambda: any(received.iterdir()), "the server receives it")
        page.close()
        waiting.wait_until(lambda: not any(received.iterdir()), "nothing of it is left")


def test_an_overloaded_server_says_when_to_try_again(
    open_page: Callable[..., Page], small_server: Server
) -> None:
    page = open_page(small_server)
    page.wait_for_load_state("networkidle")
    page.fill("#text", BEES)
    with occupied(small_server, places=2):
        page.click("#find")
        shown = notice(page)
        assert "The service is overloaded" in shown
        assert re.search(r"The server asks to wait \d+ s\.", shown)
    page.click("#search-notice button")
    page.wait_for_selector("#search-status >> text=/match/")


def test_a_server_that_goes_away_is_missed(
    open_page: Callable[..., Page], small_server: Server
) -> None:
    page = open_page(small_server)
    small_server.stop(signal.SIGKILL)
    page.fill("#text", BEES)
    page.click("#find")
    assert "The server does not answer." in notice(page)
    assert page.locator("#search-notice button").count() == 1  # to try again
    away = "document.querySelector('#index-summary').classList.contains('away')"
    wait_until(page, away)
    page.click("#index-button")
    assert "The server does not answer." in notice(page, "#index-notice")


def test_a_broken_upload_is_refused(search_page: Page, tmp_path: Path) -> None:
    search_page.click("#index-button")
    drop(search_page, ("a.jsonl", "{}"), ("b.jsonl", "{}"), target="#index-panel")
    search_page.wait_for_selector("#upload-status >> text='0 files added, 2 skipped.'")
    broken = tmp_path / "corpus.jsonl.gz"
    broken.write_text("no gzip")
    search_page.set_input_files("#corpus", broken)
    search_page.wait_for_selector("#upload-notice >> text=/gzip/")
    assert search_page.locator("#index-panel").is_visible()
