import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.quality import rerank as rerank_benchmark
from encoder.checkpoint import load_checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from evaluation.fitting.judged_corpora import open_pair_scorer, read_judged_corpus
from index.embed import EmbeddedCorpus, write_embedded_corpus
from tests.tools.index_fixtures import aligned_of

TOPICS = {"river": "The river carries water.", "music": "The violin plays a concert."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A corpus of two topics with judgements, parts, pairs and vectors."""
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
    vectors = np.random.default_rng(1).normal(size=(12, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokens = np.full(12, 60, dtype=np.int64)
    write_embedded_corpus(
        folder / "small.npz",
        EmbeddedCorpus(tuple(names), vectors, tokens, tokens, 0, aligned_of(vectors)),
    )
    return folder


@pytest.mark.slow
def test_both_stages_are_measured_on_the_same_queries(
    folder: Path, tiny_checkpoint: Path, tiny_reranker: Path
) -> None:
    reranker = open_reranker(tiny_reranker)
    corpus = read_judged_corpus(folder, folder / "small.npz", load_checkpoint(tiny_checkpoint))
    scorer = open_pair_scorer(corpus, reranker, folder / "work", 1)
    task = corpus.task("valid", 4)
    assert len(task.query_ids) == 4
    parts = {"valid": rerank_benchmark.measure(corpus, scorer, reranker, task, 5)}
    assert parts["valid"]["queries"] == 4
    for mode in rerank_benchmark.MODES:
        one = parts["valid"][mode]
        gain = one["reranked"]["value"] - one["first_stage"]["value"]
        assert one["gain"]["difference"] == pytest.approx(gain)
    assert list((folder / "work").glob("small-*-int8.npz"))
    cost = rerank_benchmark.measure_cost(corpus, reranker, task, 3)
    assert set(cost["ms_per_candidate"]) == {"read", "filter", "judge"}
    record = {
        "settings": {"candidates": 5, "reranker": "tiny-reranker"},
        "results": {"corpora": {"small": parts}, "cost": cost, "filter_ms": {"median": 1.0}},
    }
    json.dumps(record, allow_nan=False)
    text = rerank_benchmark.table(record)
    assert "nDCG@10, the first 5 reranked by tiny-reranker" in text
    assert text.count("| small") == 3
