"""What all tests share: one thread in each process, the fixtures of tests/kit, none skipped."""

import gc
import os
import shutil
import sys
from pathlib import Path

import pytest

# Before NumPy, torch and FAISS are imported: two workers of the tests have two cores, and arrays
# this small gain nothing from a second thread.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# Compiled modules are kept whatever the environment says: each process that a test starts would
# compile all sources again, which takes it a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The folders of tests are in memory where there is plenty: a disk takes minutes for their fsyncs.
_MEMORY = Path("/dev/shm")
_ENOUGH = 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

pytest_plugins = [
    *("tests.kit.checkpoints", "tests.kit.command", "tests.kit.index_fixtures"),
    *("tests.kit.judged_corpus", "tests.kit.page_fixtures", "tests.kit.process_fixtures"),
    *("tests.kit.python_clients", "tests.kit.redis_server", "tests.kit.search_page_fixtures"),
    *("tests.kit.service_fixtures", "tests.kit.small_disk", "tests.kit.tiers"),
]


def pytest_report_header() -> list[str]:
    """Say which Qdrant and which all-MiniLM-L6-v2 the tests use besides what they have."""
    asked = {"a Qdrant server": "LONGMATCH_TEST_QDRANT", "MiniLM": "LONGMATCH_TEST_MINILM"}
    return [
        f"{what} ({name}): {os.environ.get(name, 'not asked for')}" for what, name in asked.items()
    ]


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections, a tenth of all time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the session for a skipped test: it would prove nothing and nobody would know."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped") and exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
