"""The process that reads files for `index.corpus.file_reader`: requests in, replies out.

Both are JSON, never pickled: what reads a hostile file is not to be trusted. The process sets its
own limits, and ends with the other side of its connection.
"""

import json
import os
import queue
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from index.corpus.formats.files import read_file_text
from index.corpus.formats.parquet import count_rows, read_rows
from index.errors import CorpusError

OUT_OF_MEMORY = 3  # exit status
READ, COUNT_ROWS, READ_ROWS = "read", "count rows", "read rows"  # tasks


def main(descriptor: int, memory_bytes: int, cpu_seconds: int) -> None:
    """Answer requests until the other side of a connection is closed.

    Args:
        descriptor: of the connection.
        memory_bytes: limit of the address space; 0 for none.
        cpu_seconds: limit of processor time for each request.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    connection = Connection(descriptor)
    requests = queue.SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(connection, requests), daemon=True).start()
    while True:
        request = json.loads(requests.get())
        try:
            _limit_time(cpu_seconds)
            for reply in _answer(request["task"], Path(request["path"])):
                text = json.dumps(reply, ensure_ascii=False)
                connection.send_bytes(text.encode("utf-8", "surrogatepass"))
                _limit_time(cpu_seconds)
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BrokenPipeError:  # the parent has gone
            os._exit(0)


def _answer(task: str, path: Path) -> Iterator[dict[str, Any]]:
    """Yield a reply, or one for each row and an empty one after them."""
    try:
        if task == READ:
            yield asdict(read_file_text(path))
        elif task == COUNT_ROWS:
            yield {"count": count_rows(path)}
        else:
            for row in read_rows(path):
                yield {"row": row}
            yield {}
    except CorpusError as error:
        yield {"error": str(error)}


def _receive(connection: Connection, requests: "queue.SimpleQueue[bytes]") -> None:
    # In a thread of its own, which notices the end of the parent in the middle of a file, too.
    with suppress(EOFError, ConnectionError):
        while True:
            requests.put(connection.recv_bytes())
    os._exit(0)


def _limit_time(seconds: int) -> None:
    """Let the kernel end this process when it has used so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
