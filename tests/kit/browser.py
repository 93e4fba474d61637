"""The Chromium of the system, driven by Playwright."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Frame, Page, sync_playwright

from tests.kit import waiting
from tests.kit.programs import require_program
from tests.kit.waiting import TIMEOUT_S

# A page takes the shell a third of the processor time that it takes the whole browser.
_SHELL, _BROWSER = "chromium-headless-shell", "chromium"
# Chromium's sandbox does not start for root, which containers run as; they have little /dev/shm.
_SWITCHES = ("--no-sandbox", "--disable-dev-shm-usage")


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """Run a headless Chromium.

    As long as it is open this thread has a running event loop: asyncio.run() fails.
    """
    with sync_playwright() as playwright:
        path = shutil.which(_SHELL) or shutil.which(_BROWSER) or require_program(_SHELL)
        browser = playwright.chromium.launch(
            executable_path=path, args=_SWITCHES, timeout=TIMEOUT_S * 1000
        )
        try:
            yield browser
        finally:
            browser.close()


def complaints_of_axe(page: Page | Frame) -> list[str]:
    """What axe-core complains of, with the elements."""
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in Axe().run(page).response["violations"]
        for node in violation["nodes"]
    ]


def announced(page: Page) -> set[tuple[str, str]]:
    """(role, name) of everything that assistive technology announces."""
    session = page.context.new_cdp_session(page)
    nodes: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    named = [node for node in nodes if not node["ignored"] and "name" in node]
    return {(node["role"]["value"], node["name"]["value"]) for node in named}


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


def wait_until(page: Page, expression: str) -> None:
    """Wait until an expression is true in a page.

    Playwright's own wait evaluates a string inside the page, which the policy of a page may forbid.
    """
    waiting.wait_until(lambda: page.evaluate(expression), f"never true: {expression}")


def save(page: Page, selector: str, folder: Path) -> Path:
    """Click what saves a file, and return the file, which is put into an empty folder.

    Playwright's own wait for the end of a download has no limit.
    """
    folder.mkdir()
    session = page.context.new_cdp_session(page)
    session.send("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    page.click(selector)
    saved: list[Path] = []

    def is_saved() -> bool:
        page.wait_for_timeout(20)
        saved[:] = folder.iterdir()
        # Chromium creates an empty file of the name, and fills another one.
        return len(saved) == 1 and saved[0].suffix != ".crdownload" and saved[0].stat().st_size > 0

    waiting.wait_until(is_saved, "nothing was saved")
    return saved[0]
