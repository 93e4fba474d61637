"""The page in a real browser: nothing leaves it, and nothing in the texts does anything."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from encoder.comparison.result import Comparison, Span
from service.web.marked_text import visible
from service.web.report import render_report
from tests.tools.browser import Browser

Show = Callable[..., Browser]
Make = Callable[..., Comparison]

HOSTILE = """<script>alert(1)</script></script><img src=x onerror="alert(2)">
"><svg onload='alert(3)'></svg></mark></div></section></main></body></html><!--
<style>*{display:none}
</title><h1>Identical</h1>]]><template>&lt;&amp;&#0;&nbsp;javascript:alert(4)
{{ 7 * 7 }} ${alert(5)}
\0\x1b\x7f\x85\u202egnp.exe\u202c \u2066x\u2069 \ud800\udc00 \ufffe \ufeff tab\tend\r
"""
HARMLESS = "x" * len(HOSTILE)

TEXT_WITHOUT_NUMBERS = """(() => {
  const text = document.querySelector("#left .text").cloneNode(true);
  for (const number of text.querySelectorAll(".n, .h")) number.remove();
  return text.textContent;
})()"""


def requests(browser: Browser) -> list[str]:
    """Addresses that the page has asked for."""
    return [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
    ]


def complaints(browser: Browser) -> list[str]:
    """What the console says: errors, warnings, violations of the policy."""
    methods = {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}
    found = [event for event in browser.events if event["method"] in methods]
    opened = [
        event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"
    ]
    return [json.dumps(event["params"]) for event in found + opened]


def use_everything(browser: Browser) -> None:
    for key in ("n", "n", "p", "1", "2", "?", "Escape"):
        browser.press(key)
    browser.click("#left mark")
    browser.click("#matrix g rect")
    browser.resize(500, 800)
    browser.evaluate("document.querySelector('details').open = true")


def test_the_page_asks_for_nothing_and_complains_of_nothing(show: Show) -> None:
    browser = show()
    use_everything(browser)
    browser.pdf()
    assert requests(browser) == [browser.evaluate("location.href")]
    assert complaints(browser) == []


@pytest.fixture
def served(page: str) -> Iterator[tuple[str, list[str]]]:
    """The address of the page on a server, and the paths that the server is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/report", asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_from_a_server_it_asks_for_no_icon_either(
    browser: Browser, served: tuple[str, list[str]]
) -> None:
    address, asked = served
    browser.open(address)
    use_everything(browser)
    assert asked == ["/report"]
    assert complaints(browser) == []


def test_the_policy_stops_what_would_come_in(show: Show) -> None:
    browser = show()
    stopped = browser.evaluate("""new Promise((done) => {
      const stopped = [];
      document.addEventListener("securitypolicyviolation", (event) => {
        stopped.push(event.effectiveDirective);
        if (stopped.length === 4) done(stopped.sort());
      });
      document.body.insertAdjacentHTML("beforeend",
        '<img src="http://127.0.0.1:9/a.png"><p style="color:red" onclick="alert(1)">');
      document.querySelector("p[onclick]").click();
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
    })""")
    assert stopped == ["img-src", "script-src-attr", "script-src-elem", "style-src-attr"]
    assert browser.evaluate("window.ran") is None


def hostile_page(make: Make, text: str) -> str:
    """A page with a text wherever a stranger can put one."""
    comparison = make(text, text, (Span(3, 60), Span(0, 90)), (Span(40, 333), Span(50, len(text))))
    section = comparison.left_sections[0]
    titled = type(section)(section.span, text)
    changed = type(comparison)(
        **{name: getattr(comparison, name) for name in comparison.__slots__}
        | {"evidence": (text,), "left_sections": (titled,) * 2, "right_sections": (titled,) * 2}
    )
    return render_report(changed, text, text, text, text)


def test_hostile_text_stays_text(show: Show, by_hand: Make) -> None:
    browser = show(hostile_page(by_hand, HARMLESS))
    count = "document.querySelectorAll('*').length"
    elements = browser.evaluate(count)
    show(hostile_page(by_hand, HOSTILE))
    use_everything(browser)
    assert browser.evaluate(count) == elements
    assert complaints(browser) == []
    assert requests(browser) == [browser.evaluate("location.href")]
    as_read = visible(HOSTILE).replace("\r\n", "\n")
    assert browser.evaluate(TEXT_WITHOUT_NUMBERS) == as_read
    assert browser.evaluate("document.querySelector('#left h2').textContent") == as_read.strip()
    assert browser.evaluate("document.querySelector('.evidence li').textContent") == as_read
    assert browser.evaluate("document.title").startswith("<script>alert(1)</script>")


def test_a_mark_that_reorders_text_has_no_effect(show: Show, by_hand: Make) -> None:
    text = "safe\u202egnp.exe"
    browser = show(render_report(by_hand(text, "x"), text, text, "x", "x"))
    left_edges = browser.evaluate("""(() => {
      const text = document.querySelector("#left .text").lastChild;
      return [...text.data].map((_, at) => {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect().left;
      });
    })()""")
    assert left_edges == sorted(left_edges)
    assert len(left_edges) > 5
