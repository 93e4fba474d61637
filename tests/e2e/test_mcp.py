"""The official client of the Model Context Protocol, against `longmatch mcp` and a real server."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from service.cli.mcp import make_server
from tests.kit.process_fixtures import COMMAND, add_key, free_port, run, serving
from tests.kit.waiting import wait_until

if TYPE_CHECKING:  # a second, in each worker of the tests
    from mcp import Client
    from mcp.types import CallToolResult

TOPICS = ("violin orchestra sonata", "granite basalt lava", "harbour sailor anchor")
DOCUMENTS = {
    f"folder/d{n}": f"Part {n} is about the {TOPICS[n % 3]}. It is the {TOPICS[n % 3]} again."
    for n in range(12)
}
Asked = Callable[["Client"], Awaitable[Any]]
Ask = Callable[[Asked], Any]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, tiny_checkpoint: Path
) -> Iterator[tuple[str, str]]:
    """Run a server that asks for a key; return its address and a key that may read."""
    folder = tmp_path_factory.mktemp("mcp")
    lines = (
        json.dumps({"id": name, "title": name.upper(), "text": text})
        for name, text in DOCUMENTS.items()
    )
    (corpus := folder / "corpus.jsonl").write_text("\n".join(lines))
    done = run("index", corpus, "--data", folder / "data", checkpoint=tiny_checkpoint)
    assert done.returncode == 0, done.stderr
    token = add_key(folder / "data", "read")
    with serving(folder, folder / "data", tiny_checkpoint) as server:
        yield server.url, token


@pytest.fixture(params=["stdio", "http"])
def ask(request: pytest.FixtureRequest, served: tuple[str, str]) -> Iterator[Ask]:
    """Ask `longmatch mcp` over a transport."""
    from mcp import StdioServerParameters

    url, token = served
    arguments = [*COMMAND[1:], "mcp", "--url", url]
    if request.param == "stdio":
        stdio = StdioServerParameters(
            command=COMMAND[0], args=arguments, env=os.environ | {"LONGMATCH_API_KEY": token}
        )
        yield lambda asked: asyncio.run(connected(stdio, asked))
        return
    port = free_port()
    with subprocess.Popen(
        [COMMAND[0], *arguments, "--port", str(port)],
        env=os.environ | {"LONGMATCH_API_KEY": token},
    ) as process:
        try:
            wait_for(port, process)
            yield lambda asked: asyncio.run(connected(f"http://127.0.0.1:{port}/mcp", asked))
        finally:
            process.kill()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    def listens() -> bool:
        assert process.poll() is None
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_until(listens, "longmatch mcp does not listen")


async def connected(server: Any, asked: Asked) -> Any:
    from mcp import Client

    async with Client(server) as client:
        return await asked(client)


def said(result: "CallToolResult") -> str:
    (content,) = result.content
    return str(content.text)


def test_documents_are_matched_compared_and_read(ask: Ask) -> None:
    async def asked(client: "Client") -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"match", "compare", "read_passage"}
        text = DOCUMENTS["folder/d0"]
        found = await client.call_tool("match", {"text": text, "top_k": 3})
        assert found.structured_content is not None
        first = found.structured_content["result"][0]
        assert (first["id"], first["title"]) == ("folder/d0", "FOLDER/D0")
        assert first["passages"][0]["right"]["text"] in text
        sides = {"left_text": text, "right_id": "folder/d3"}
        compared = (await client.call_tool("compare", sides)).structured_content
        assert compared is not None
        assert 0 < compared["left_coverage"] <= 1
        assert compared["differences"] is None
        sides |= {"left_text": f"{text} Nobody else knows the walrus.", "differences": True}
        lacking = (await client.call_tool("compare", sides)).structured_content
        assert lacking is not None
        assert "walrus" in lacking["differences"]["left"][-1]["text"]
        part = {"id": "folder/d3", "start": 5, "characters": 10}
        read = (await client.call_tool("read_passage", part)).structured_content
        assert read is not None
        assert read["text"] == DOCUMENTS["folder/d3"][5:15]
        assert read["characters"] == len(DOCUMENTS["folder/d3"])

    ask(asked)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("match", {"text": "a", "id": "b"}, "exactly one of"),
        ("match", {"id": "d0", "top_k": 0}, "greater than or equal to 1"),
        ("read_passage", {"id": "unknown"}, "unknown"),
        ("read_passage", {}, "id"),
        ("compare", {"left_id": "folder/d0"}, "right"),
    ],
)
def test_wrong_arguments_are_explained(
    served: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tool: str,
    arguments: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.setenv("LONGMATCH_API_KEY", served[1])

    async def asked(client: "Client") -> str:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        return said(result)

    answer = asyncio.run(connected(make_server(served[0]), asked))
    assert message in answer
    assert "Traceback" not in answer
