"""The Chromium of the system, driven by Playwright."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.tools.programs import require_program

# Chromium's sandbox does not start for root, which containers run as; they have little /dev/shm.
_SWITCHES = ("--no-sandbox", "--disable-dev-shm-usage")


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Run a headless Chromium.

    As long as it is open this thread has a running event loop: asyncio.run() fails.
    """
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=require_program("chromium"), args=_SWITCHES
        )
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class PageLog:
    """What a page did.

    Attributes:
        requests: the addresses that it requested.
        complaints: errors, messages of the console, violations of the policy, and dialogs.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, page: Page) -> "PageLog":
        """Return the log of a page, which is written from now on."""
        log = cls()
        page.on("request", lambda request: log.requests.append(request.url))
        page.on("console", lambda message: log.complaints.append(message.text))
        page.on("pageerror", lambda error: log.complaints.append(str(error)))

        page.on("dialog", log._dismiss)
        return log

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()


def wait_until(page: Page, expression: str, *, seconds: float = 10.0) -> None:
    """Wait until an expression is true in a page.

    Playwright's own wait evaluates a string inside the page, which the policy of a page may forbid.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"never true: {expression}"
        page.wait_for_timeout(20)
