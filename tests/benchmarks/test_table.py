import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.common import RESULTS, ROOT
from benchmarks.table import TABLES

KEPT = sorted(RESULTS.glob("*.json"))


def test_every_benchmark_has_a_result() -> None:
    kept = {json.loads(path.read_text(encoding="utf-8"))["benchmark"] for path in KEPT}
    assert {"encoder", "index", "load"} <= kept <= set(TABLES)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: str(path.name))
def test_a_result_can_be_printed_and_names_no_path(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    record = json.loads(text)
    assert "| --" in TABLES[record["benchmark"]](record)
    assert not any(place in text for place in ('"/', "/tmp", "/home", "site-packages"))


def test_printing_results_loads_no_torch() -> None:
    code = "import sys, benchmarks.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
