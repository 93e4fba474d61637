"""The real server as a process, over HTTP."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encoder.checkpoint import DEFAULT_CHECKPOINT
from tests.kit.command import Run
from tests.kit.waiting import wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
MUSIC = "A sonata has three movements. The second of them is slow. " * 5
WINTER = "In winter the lakes freeze over, and the birds fly to the south. " * 5


def test_the_main_job_with_the_shipped_checkpoint(
    serve: Callable[..., Any], longmatch: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "papers"
    folder.mkdir()
    for name, text in {"river": RIVER, "music": MUSIC, "winter": WINTER}.items():
        (folder / f"{name}.txt").write_text(text)
    data = tmp_path / "data"
    shipped = ("--encoder", DEFAULT_CHECKPOINT)
    assert longmatch("index", folder, "--data", data, *shipped).status == 0
    with serve(data, None) as server:
        status, answer = server.request(
            "POST", "/match", {"text": "Streams and floods move pebbles downhill.", "top_k": 2}
        )
        assert status == 200
        assert answer["matches"][0]["id"] == "river.txt"
        assert answer["receipt"]["tokens_read"] == answer["receipt"]["tokens"] > 5
        status, answer = server.request("POST", "/match", {"id": "river.txt"})
        assert {match["id"] for match in answer["matches"]} == {"music.txt", "winter.txt"}
        status, answer = server.request(
            "POST", "/match", {"queries": [{"id": "music.txt"}, {"text": MUSIC}], "top_k": 1}
        )
        assert answer["results"][1]["matches"][0]["id"] == "music.txt"


def test_sigterm_finishes_what_was_begun(serve: Callable[..., Any], tmp_path: Path) -> None:
    with serve(tmp_path / "data", None, threads=1, drain_seconds=110) as server:
        book = "Every word of this long book is read, from the first page to the last. " * 500
        answers: list[tuple[int, Any]] = []
        reader = threading.Thread(
            target=lambda: answers.append(server.request("POST", "/match", {"text": book}))
        )
        reader.start()
        wait_until(lambda: server.metric("longmatch_queue_tokens") > 0)
        assert server.stop(signal.SIGTERM) == 0
        reader.join()
        assert answers[0][0] == 200
        assert answers[0][1]["receipt"]["tokens_read"] > 7_000
