"""Run the tests of Milvus against a Milvus server: `make test-milvus` does.

The only argument is a Python that has the package `milvus`, which starts the server in a folder of
its own; it ends with the tests.
"""

import os
import subprocess
import sys
import tempfile

from tests.tools.process_fixtures import free_port

TESTS = (
    "tests/contract/test_vector_index.py",
    "tests/contract/test_vector_search.py",
    "tests/index/search/test_search_milvus.py",
    "tests/index/vectors/milvus",
)
# A server takes seconds to make a collection, of which these make a hundred. It has no words.
CHOSEN = "milvus and not any_order_of_steps and not among_some_equals and not test_words"
SERVE = """
import sys
from milvus import default_server
default_server.listen_port = int(sys.argv[1])
default_server.set_base_dir(sys.argv[2])
default_server.start()
print("started", flush=True)
sys.stdin.read()
default_server.stop()
"""


def main() -> int:
    """Start a server, run the tests, stop it; return their exit status."""
    with tempfile.TemporaryDirectory() as folder:
        port = str(free_port())
        server = subprocess.Popen(
            [sys.argv[1], "-c", SERVE, port, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        with server, server.stdin:
            if not server.stdout.readline().startswith("started"):
                return 1
            variables = os.environ | {"LONGMATCH_TEST_MILVUS": f"milvus://127.0.0.1:{port}"}
            command = [sys.executable, "-m", "pytest", "-q", "-k", CHOSEN, *TESTS]
            return subprocess.run(command, env=variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
