from importlib.metadata import version

import pytest

from benchmarks.engines import words
from index.document import Document

WORDS = ("heron", "egret", "marsh", "court", "appeal", "motor", "bolt", "violin", "basalt", "queen")


@pytest.mark.slow
def test_a_small_run_is_measured_and_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ROUNDS", 1)
    monkeypatch.setattr(words, "QUERIES_A_ROUND", 3)
    monkeypatch.setattr("benchmarks.common._PAUSE_SECONDS", 0.0)
    texts = [
        Document(f"d{n}", " ".join(WORDS[n * step % 10] for step in range(1, 5)) + f" text{n % 7}")
        for n in range(23)
    ]
    results = words.measure(texts, 20, None)
    assert set(results) == {"local", f"milvus milvus_lite-{version('milvus-lite')}"}
    for one in results.values():
        for kind in words.KINDS:
            assert one[kind]["same_ten"] == 1.0
            assert one[kind]["searching"]["median"] > 0
    assert len(words.table({"results": results}).splitlines()) == 2 + 2 * len(results)
