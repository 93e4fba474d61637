"""Run tests against the core of a Milvus 2.5, which has sparse vectors: `make test-milvus` does.

    python -m tests.tools.milvus_core PYTHON
    python -m tests.tools.milvus_core PYTHON COMMAND…

The package milvus-lite 2.5, which the first argument has, contains the segments, indexes and
search of a Milvus server as one program. It tells no version, so this process stands between, and
forwards every other request. It ends with the command, such as benchmarks.engines.words, in which
{url} stands for its address.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from pymilvus.grpc_gen import milvus_pb2

from tests.tools.process_fixtures import free_port

TESTS = (
    "tests/contract/test_word_index.py",
    "tests/index/search/test_search_milvus.py",
    "tests/index/vectors/milvus/test_words.py",
)
VERSION = "v2.5.1-core"
START_SECONDS = 30
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_WITH_PINGS = [*_UNLIMITED, ("grpc.http2.max_ping_strikes", 0)]  # of pymilvus, every ten seconds


class Forwarder(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Forwards requests to a channel, and answers those for the version."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method
        answer = _tell_version if method.endswith("/GetVersion") else self._forward(method)
        return grpc.unary_unary_rpc_method_handler(answer)

    def _forward(self, method: str) -> Callable[[bytes, Any], bytes]:
        call = self._channel.unary_unary(method)

        def answer(request: bytes, context: Any) -> bytes:
            try:
                return bytes(call(request, timeout=60))
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
                raise

        return answer


def _tell_version(request: bytes, context: Any) -> bytes:
    return bytes(milvus_pb2.GetVersionResponse(version=VERSION).SerializeToString())


def main() -> int:
    """Start the core, run the command, stop the core; return the status of the command."""
    find = "import milvus_lite, os; print(os.path.dirname(milvus_lite.__file__))"
    package = subprocess.run([sys.argv[1], "-c", find], check=True, stdout=subprocess.PIPE)
    libraries = Path(package.stdout.decode().strip()) / "lib"
    core, own = (f"127.0.0.1:{free_port()}" for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [libraries / "milvus", Path(folder) / "core.db", core, "ERROR"],
            env=os.environ | {"LD_LIBRARY_PATH": str(libraries)},
            cwd=folder,
        )
        channel = grpc.insecure_channel(core, options=_UNLIMITED)
        grpc.channel_ready_future(channel).result(START_SECONDS)
        server = grpc.server(
            ThreadPoolExecutor(8), handlers=[Forwarder(channel)], options=_WITH_PINGS
        )
        server.add_insecure_port(own)
        server.start()
        try:
            return _run(f"milvus://{own}")
        finally:
            server.stop(None).wait()
            process.kill()
            process.wait()


def _run(url: str) -> int:
    tests = [sys.executable, "-m", "pytest", "-q", "-k", "milvus", *TESTS]
    command = [part.replace("{url}", url) for part in sys.argv[2:]] or tests
    variables = os.environ | {"LONGMATCH_TEST_MILVUS": url}
    return subprocess.run(command, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
