"""A real server whose copy of the lexical index is missing: it answers while the copy is made."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until

RIVER = "Rivers carry water and stones to the sea. They flood in spring. " * 5
MUSIC = "A sonata has three movements. The second of them is slow. " * 5

# `longmatch` on a collection so large that the copy takes until the file "made" is there.
SLOW = """
import sys, time, pathlib
import index.followers
import index.lexical.segmented_index as segmented
index.followers.AT_OPENING = 0
made, write_terms = pathlib.Path(sys.argv.pop(1)), segmented.write_terms
def slow(*arguments):
    while not made.exists():
        time.sleep(0.01)
    return write_terms(*arguments)
segmented.write_terms = slow
from service.cli.main import main
main()
"""


def readiness(server: Any) -> tuple[int, str, list[str]]:
    status, answer = server.request("GET", "/readyz")
    return status, answer["status"], answer["degraded"]


def match(server: Any, mode: str) -> tuple[int, Any]:
    status, answer = server.request("POST", "/match", {"text": RIVER, "mode": mode})
    return int(status), answer


@pytest.mark.slow
def test_a_server_answers_while_the_words_are_not_ready(
    serve: Callable[..., Any], tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data, made = tmp_path / "data", tmp_path / "made"
    with serve(data, tiny_checkpoint) as server:
        documents = [{"id": "river", "text": RIVER}, {"id": "music", "text": MUSIC}]
        assert server.request("POST", "/index", {"documents": documents})[0] == 200
        before = match(server, "hybrid")[1]["matches"]
        server.stop()
    shutil.rmtree(data / "lexical", ignore_errors=True)
    slow = [sys.executable, "-c", SLOW, str(made)]
    with serve(data, tiny_checkpoint, slow) as server:
        assert readiness(server) == (200, "degraded", ["words"])
        status, answer = match(server, "hybrid")
        assert (status, answer["scored_as"]) == (200, "semantic")
        status, answer = match(server, "lexical")
        assert (status, answer["type"]) == (503, "/problems/not-ready")
        assert "lexical index is being made" in answer["detail"]
        made.touch()
        wait_until(lambda: readiness(server) == (200, "ready", []))
        assert match(server, "hybrid")[1]["matches"] == before
        assert server.stop() == 0
