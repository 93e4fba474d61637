from pathlib import Path

import pytest

from benchmarks.speed.backup import measure, table
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint


@pytest.mark.slow
def test_every_step_is_measured(tmp_path: Path) -> None:
    results = measure(tmp_path, load_checkpoint(DEFAULT_CHECKPOINT), 120)
    assert all(value > 0 for value in results.values())
    record = {"settings": {"documents": 120}, "results": results}
    assert "120 documents" in table(record)
    assert table(record).count("\n") == len(results)
