"""A real server with collections is killed: what it acknowledged holds."""

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import TIMEOUT_S


@pytest.mark.slow
def test_what_was_created_or_removed_stays_so_after_a_kill(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    body = {"documents": [{"id": "a", "text": "Ants dig."}]}
    with serve(data, tiny_checkpoint) as server:
        for name in ("kept", "removed"):
            assert server.request("PUT", f"/collections/{name}")[0] == 201
            assert server.request("POST", f"/collections/{name}/index", body)[0] == 200
        assert server.request("DELETE", "/collections/removed")[0] == 204
        acknowledged: dict[str, int] = {}
        changed = threading.Semaphore(0)

        def change() -> None:
            with suppress(OSError):
                for number in range(1000):
                    name = f"c{number % 3}"
                    method = "DELETE" if acknowledged.get(name) in (200, 201) else "PUT"
                    acknowledged.pop(name, None)  # unknown until it is answered
                    acknowledged[name] = server.request(method, f"/collections/{name}")[0]
                    changed.release()

        changing = threading.Thread(target=change)
        changing.start()
        for _ in range(5):
            assert changed.acquire(timeout=TIMEOUT_S)
        server.stop(signal.SIGKILL)
        changing.join()
    with serve(data, tiny_checkpoint) as server:
        listed = server.request("GET", "/collections")[1]["collections"]
        assert {row["state"] for row in listed} == {"open"}
        names = {row["name"] for row in listed}
        assert {"default", "kept"} <= names <= {"default", "kept", "c0", "c1", "c2"}
        for name, status in acknowledged.items():
            assert (name in names) == (status in (200, 201)), (name, status)
        assert server.request("GET", "/collections/kept/documents/a")[0] == 200
        hidden = [path.name for path in (data / "collections").iterdir() if path.name not in names]
        assert hidden == []
