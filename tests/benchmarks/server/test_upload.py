from pathlib import Path

import pytest

from benchmarks.server import upload


@pytest.mark.slow
def test_uploads_to_the_real_server_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    monkeypatch.setattr(upload, "ROUNDS", 1)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    results = upload.measure(tmp_path, tiny_checkpoint, 100)
    assert set(results["seconds"]) == {"upload", "upload, gzip", "reading"}
    assert 0 < results["compressed_bytes"] < results["bytes"]
    printed = upload.table({"settings": {"documents": 100}, "results": results})
    assert "| 100 lines, 1 MB" in printed
    assert len(printed.splitlines()) == 5
