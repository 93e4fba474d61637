"""The page of a real comparison, as the service answers it and as a browser shows it."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from service.web.report import content_security_policy
from tests.kit.browser import PageLog

SHARED = "The keeper of the lighthouse lit the lamp each evening before the fog came in. "
LEFT = "# Lamps\n\n" + "Oil is dear in winter, and wicks are short. " * 4 + SHARED * 3
RIGHT = SHARED * 2 + "Ships wait outside the harbour. " * 6 + "<script>alert(1)</script>\u202e"


@pytest.fixture(scope="module")
def response(library: Any) -> Any:
    body = {"left": {"text": LEFT}, "right": {"text": RIGHT}}
    return library.post("/compare", json=body, headers={"accept": "text/html"})


def test_a_page_is_served_with_its_policy_and_is_not_kept(response: Any) -> None:
    assert response.status_code == 200
    policy = response.headers["content-security-policy"]
    assert policy == f"{content_security_policy()}; frame-ancestors 'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"


def test_what_was_compared_can_be_read_and_followed(
    response: Any, show: Callable[..., Page], page_log: PageLog
) -> None:
    page = show(response.text)
    for side in "left", "right":
        lit = page.evaluate(
            f"[...document.querySelectorAll('#{side} mark.on')].map((m) => m.textContent).join('')"
        )
        assert SHARED.strip() in lit
    assert "alert(1)" in page.evaluate("document.querySelector('#right').innerText")
    assert "[U+202E]" in page.evaluate("document.querySelector('#right').innerText")
    assert page_log.complaints == []
