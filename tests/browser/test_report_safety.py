"""The page in a real browser: nothing leaves it, and nothing in the texts does anything."""

from collections.abc import Callable

from playwright.sync_api import Page

from encoder.comparison.result import Comparison, Span
from service.web.marked_text import join_lines, visible
from service.web.report import render_report
from tests.kit.browser import PageLog

Show = Callable[..., Page]
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


def use_everything(page: Page) -> None:
    for key in ("n", "n", "p", "1", "2", "?", "Escape"):
        page.keyboard.press(key)
    page.click("#left mark")
    page.click("#matrix g rect")
    page.set_viewport_size({"width": 500, "height": 800})
    page.evaluate("document.querySelector('details').open = true")


def test_the_policy_stops_what_would_come_in(show: Show) -> None:
    page = show()
    stopped = page.evaluate("""new Promise((done) => {
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
    assert page.evaluate("window.ran") is None


def hostile_page(make: Make, text: str) -> str:
    """A page with a text wherever a stranger can put one."""
    comparison = make(text, text, (Span(3, 60), Span(0, 90)), (Span(40, 333), Span(50, len(text))))
    section = comparison.left_sections[0]
    titled = type(section)(section.span, text)
    changed = type(comparison)(
        **{name: getattr(comparison, name) for name in comparison.__slots__}
        | {
            "evidence": (text, text),
            "left_sections": (titled,) * 2,
            "right_sections": (titled,) * 2,
        }
    )
    return render_report(changed, text, text, text, text)


def test_hostile_text_stays_text(show: Show, by_hand: Make, page_log: PageLog) -> None:
    page = show(hostile_page(by_hand, HARMLESS))
    count = "document.querySelectorAll('*').length"
    elements = page.evaluate(count)
    show(hostile_page(by_hand, HOSTILE))
    use_everything(page)
    assert page.evaluate(count) == elements
    assert page_log.complaints == []
    assert page_log.requests == [page.evaluate("location.href")]
    as_joined = visible(join_lines(HOSTILE)).replace("\r\n", "\n")
    assert page.evaluate(TEXT_WITHOUT_NUMBERS) == as_joined
    as_read = visible(HOSTILE).replace("\r\n", "\n")
    assert page.evaluate("document.querySelector('#left h2').textContent") == as_read.strip()
    assert page.evaluate("document.querySelector('.evidence li').textContent") == as_read
    assert page.evaluate("document.title").startswith("<script>alert(1)</script>")


def test_a_mark_that_reorders_text_has_no_effect(show: Show, by_hand: Make) -> None:
    text = "safe\u202egnp.exe"
    page = show(render_report(by_hand(text, "x"), text, text, "x", "x"))
    left_edges = page.evaluate("""(() => {
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
