"""How fast does the server accept a bulk upload?

    python -m benchmarks.server.upload

Real uploads to the real server, plain and compressed, timed from the first byte to the response,
which is sent once everything is on disk. The job is then cancelled, since the rest is encoding.
"""

import gzip
import http.client
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import (
    SEED,
    Spread,
    commit,
    interleave,
    make_record,
    markdown_table,
    spread,
    write_record,
)
from benchmarks.server.server import Server, started
from encoder.checkpoint import DEFAULT_CHECKPOINT

WORDS = 2_000
VOCABULARY = 50_000
ROUNDS = 5
_TIMEOUT_SECONDS = 60.0


def main(
    documents: Annotated[int, typer.Option(min=1, help="Lines of the upload.")] = 2_000,
) -> None:
    """Measure uploads, and write the result."""
    source = commit()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), DEFAULT_CHECKPOINT, documents)
    settings = {"documents": documents, "words": WORDS, "rounds": ROUNDS}
    record = make_record("upload", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(folder: Path, checkpoint: Path, documents: int) -> dict[str, Any]:
    """Return the bytes of an upload, plain and compressed, and the seconds of each variant."""
    plain = random_lines(documents)
    small = gzip.compress(plain, 6)
    with started(folder / "data", checkpoint) as server:
        seconds = interleave(
            {
                "upload": lambda _: upload(server, plain, compressed=False),
                "upload, gzip": lambda _: upload(server, small, compressed=True),
            },
            ROUNDS,
        )
    return {
        "bytes": len(plain),
        "compressed_bytes": len(small),
        "seconds": {name: asdict(spread(some)) for name, some in seconds.items()},
    }


def random_lines(documents: int) -> bytes:
    """Generate documents whose word frequencies follow a Zipf distribution."""
    random = np.random.default_rng(SEED)
    lines = []
    for number in range(documents):
        words = np.minimum(random.zipf(1.2, WORDS), VOCABULARY).tolist()
        text = " ".join(f"word{word}" for word in words)
        lines.append(json.dumps({"id": f"d{number}", "title": f"Title {number}", "text": text}))
    return "\n".join(lines).encode()


def upload(server: Server, body: bytes, *, compressed: bool) -> float:
    """Send an upload; return the seconds until it was accepted, and cancel its job."""
    headers = {"Content-Type": "application/x-ndjson"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    began = time.perf_counter()
    job = _post(server, "/index", body, headers)["id"]
    seconds = time.perf_counter() - began
    _post(server, f"/jobs/{job}/cancel", b"", {})
    _wait(lambda: server.get(f"/jobs/{job}")["ended"] is not None)
    return seconds


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    settings, results = record["settings"], record["results"]
    rows = []
    for name, figures in results["seconds"].items():
        seconds = Spread(**figures)
        rates = [settings["documents"] / seconds.median, results["bytes"] / 1e6 / seconds.median]
        rows.append([name, seconds, *rates])
    packed = results["bytes"] / results["compressed_bytes"]
    header = f"{settings['documents']:,} lines, {results['bytes'] / 1e6:.0f} MB, {packed:.1f} : 1"
    return markdown_table([header, "s", "documents a second", "MB of lines a second"], rows)


def _post(server: Server, path: str, body: bytes, headers: dict[str, str]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status not in (200, 202):
            raise RuntimeError(f"{path}: {answer.status} {content[:300]!r}")
        return json.loads(content)
    finally:
        connection.close()


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("a cancelled job does not end")
        time.sleep(0.02)


if __name__ == "__main__":
    typer.run(main)
