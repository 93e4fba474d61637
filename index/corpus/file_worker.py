"""The process that reads files for `index.corpus.file_reader`: requests in, replies out.

A request is a line of JSON on standard input. A reply is JSON on standard output, after its length
in eight bytes. The process sets its own limits, and ends with its standard input.
"""

import json
import os
import queue
import resource
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from index.corpus.formats.files import read_file_text
from index.corpus.formats.parquet import count_rows, read_rows
from index.errors import CorpusError

LENGTH_BYTES = 8
OUT_OF_MEMORY = 3  # exit status
READ, COUNT_ROWS, READ_ROWS = "read", "count rows", "read rows"  # tasks


def encode_reply(reply: dict[str, Any]) -> bytes:
    """Return a reply with its length before it."""
    data = json.dumps(reply, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


def decode_reply(data: bytes) -> dict[str, Any]:
    """Return the reply of bytes without their length."""
    reply: dict[str, Any] = json.loads(data.decode("utf-8", "surrogatepass"))
    return reply


def main(memory_bytes: int, cpu_seconds: int) -> None:
    """Answer requests until standard input ends.

    Args:
        memory_bytes: limit of the address space; 0 for none.
        cpu_seconds: limit of processor time for each request.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    requests = queue.SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    output = os.dup(sys.stdout.fileno())
    with Path(os.devnull).open("wb") as nowhere:  # parsers in C print warnings
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
        os.dup2(nowhere.fileno(), sys.stderr.fileno())
    while True:
        request = json.loads(requests.get())
        try:
            _limit_time(cpu_seconds)
            for reply in _answer(request["task"], Path(request["path"])):
                _send(output, reply)
                _limit_time(cpu_seconds)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)


def _answer(task: str, path: Path) -> Iterator[dict[str, Any]]:
    try:
        yield from _TASKS[task](path)
    except CorpusError as error:
        yield {"error": str(error)}


def _read(path: Path) -> Iterator[dict[str, Any]]:
    yield asdict(read_file_text(path))


def _count_rows(path: Path) -> Iterator[dict[str, Any]]:
    yield {"count": count_rows(path)}


def _read_rows(path: Path) -> Iterator[dict[str, Any]]:
    for row in read_rows(path):
        yield {"row": row}
    yield {}


# Each yields one reply, or one for each row and an empty one after them.
_TASKS: Mapping[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    READ: _read,
    COUNT_ROWS: _count_rows,
    READ_ROWS: _read_rows,
}


def _receive(requests: "queue.SimpleQueue[bytes]") -> None:
    # In a thread of its own, which notices the end of the parent in the middle of a file, too.
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)


def _limit_time(seconds: int) -> None:
    """Let the kernel end this process when it has used so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _send(output: int, reply: dict[str, Any]) -> None:
    rest = memoryview(encode_reply(reply))
    try:
        while rest:
            rest = rest[os.write(output, rest) :]
    except BrokenPipeError:  # the parent has gone
        os._exit(0)
