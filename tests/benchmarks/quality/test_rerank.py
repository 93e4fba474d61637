import gzip
import json
from pathlib import Path

import pytest

from benchmarks.quality import match_ignition, match_ignition_table
from encoder.reranker.checkpoint import load_reranker_checkpoint

TOPICS = {"river": "The river carries water.", "music": "The violin plays a concert."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of two topics with judgements, parts and pairs."""
    folder = tmp_path / "small"
    folder.mkdir()
    names = [f"{topic}{n}" for topic in TOPICS for n in range(6)]
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        for name in names:
            text = f"{TOPICS[name[:-1]]} Part {name[-1]} of it. " * 5
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    same = [(a, b) for a in names for b in names if a != b and a[:-1] == b[:-1]]
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    (folder / "splits.tsv").write_text(
        "".join(f"{n}\t{'valid' if int(n[-1]) < 3 else 'test'}\n" for n in names)
    )
    pairs = {
        "valid": [("river0", "river1", 1), ("music0", "river2", 0)],
        "test": [("river3", "river4", 1), ("music3", "river5", 0)],
    }
    for part, some in pairs.items():
        with gzip.open(folder / f"pairs.{part}.jsonl.gz", "wt") as file:
            for source, target, label in some:
                file.write(json.dumps({"source": source, "target": target, "label": label}) + "\n")
    return folder


@pytest.mark.slow
def test_each_cell_of_the_filters_is_measured_once(folder: Path, tiny_reranker: Path) -> None:
    checkpoint = load_reranker_checkpoint(tiny_reranker)
    kept = folder / "cells.json"
    cells = match_ignition.measure(checkpoint, folder, 10, kept)
    assert len(cells) == 12
    assert match_ignition.measure(checkpoint, folder, 10, kept) == cells
    assert cells["5 sentence filter"]["AUC"] == cells["6 0%"]["AUC"]
    assert all({"accuracy", "F1", "AUC"} <= cell.keys() for cell in cells.values())
    assert 0.5 <= cells["5 neither filter"]["accuracy"] <= 1.0
    record = {"results": {"small": cells}}
    assert "small accuracy | small F1" in match_ignition_table.table(record)
    assert match_ignition_table.table(record).count("\n\n| ") == 3
