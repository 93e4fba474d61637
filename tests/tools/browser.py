"""A page in a real headless Chromium, by the Chrome DevTools Protocol: no driver, no package."""

import base64
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.tools.devtools_pipe import BrowserError, DevToolsPipe, Message

_PATIENCE = 60.0  # seconds for an answer: the machine may be busy
_POLL = 0.02
# Of the keys that do what they do by their number and not by their name.
_KEY_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowDown": 40}


class Browser:
    """One page.

    Attributes:
        events: what the page reported since `open`, oldest first: `method` and `params` each.
    """

    def __init__(self, width: int = 1440, height: int = 900) -> None:
        self.events: list[Message] = []
        self._pipe = DevToolsPipe()
        self._number = 0
        self._session: str | None = None
        try:
            self._begin()
            self.resize(width, height)
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        """Make a page and have it report what happens in it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._pipe.close()

    def call(self, method: str, /, **params: Any) -> Message:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._pipe.send(
            message if self._session is None else message | {"sessionId": self._session}
        )
        until = time.monotonic() + _PATIENCE
        while True:
            answer = self._pipe.receive(until)
            if "id" not in answer:
                self.events.append(answer)
            elif answer["id"] == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                result: Message = answer["result"]
                return result

    def open(self, url: str) -> None:
        """Load a page and wait until it is complete."""
        self.call("Page.navigate", url="about:blank")
        self.evaluate("document.readyState")
        self.events.clear()
        answer = self.call("Page.navigate", url=url)
        if "errorText" in answer:
            raise BrowserError(f"{url}: {answer['errorText']}")
        until = time.monotonic() + _PATIENCE
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._pipe.receive(until))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is waited for."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise BrowserError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        until = time.monotonic() + _PATIENCE
        while not self.evaluate(condition):
            if time.monotonic() > until:
                raise BrowserError(f"never true: {condition}")
            time.sleep(_POLL)

    def press(self, key: str) -> None:
        """Press and release a key, named as KeyboardEvent.key names it."""
        named = {"key": key, "code": key, "windowsVirtualKeyCode": _KEY_CODES.get(key, 0)}
        typed = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **named, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, selector: str) -> None:
        """Click in the middle of the first box of the first element that is selected."""
        box = self.evaluate(
            f"(() => {{ const box = document.querySelector({selector!r}).getClientRects()[0];"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.click_at(*box)

    def click_at(self, x: float, y: float) -> None:
        """Click at a place of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = "none" if kind == "mouseMoved" else "left"
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Give the window a size in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False},
        )

    def prefer(
        self, *, scheme: Literal["light", "dark"] = "light", media: str = "", **features: str
    ) -> None:
        """Set what the reader prefers; features are named with _ for -, as `prefers_contrast`."""
        wanted = {"prefers-color-scheme": scheme}
        wanted |= {name.replace("_", "-"): value for name, value in features.items()}
        listed = [{"name": name, "value": value} for name, value in wanted.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=listed)

    def allow_script(self, *, allowed: bool) -> None:
        """Let pages opened from now on run scripts, or not."""
        self.call("Emulation.setScriptExecutionDisabled", value=not allowed)

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as PNG."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """Return the page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=False)["data"])
