"""The fusion rule: what it computes, how it is fitted, and where it is kept."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import Float32, Int64
from encoder.checkpoint import FUSION, load_checkpoint, write_manifest
from encoder.errors import CheckpointError
from evaluation.fitting.fusion import FusionCorpus, fit_fusion
from evaluation.report import RetrievalTask
from evaluation.systems import System, hybrid_system, lexical_system
from index.search.fusion import DEFAULT_RULE, LinearFusion, fuse, read_fusion, write_fusion


def system(name: str, scores: list[list[float]]) -> System:
    table = np.array(scores, dtype=np.float32)

    def score(rows: Int64) -> Float32:
        return table[rows]

    def score_pairs(sources: Int64, targets: Int64) -> Float32:
        return table[sources, targets]

    return System(name, "", score, score_pairs)


@pytest.fixture
def checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint"))


def test_the_score_is_the_weighted_mean() -> None:
    semantic, lexical = np.array([1, 0], dtype=np.float32), np.array([0, 0.5], dtype=np.float32)
    assert fuse(LinearFusion(0.25), semantic, lexical).tolist() == [0.75, 0.125]
    left, right = system("a", [[1.0, 0.0]]), system("b", [[0.0, 0.5]])
    fused = hybrid_system(left, right, LinearFusion(0.25))
    assert fused.score(np.array([0])).tolist() == [[0.75, 0.125]]
    assert fused.score_pairs(np.array([0]), np.array([1])).tolist() == [0.125]


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_has_its_bounds(weight: float) -> None:
    with pytest.raises(ValueError, match="not from 0 to 1"):
        LinearFusion(weight)


def test_a_checkpoint_carries_its_rule(checkpoint: Path) -> None:
    assert read_fusion(load_checkpoint(checkpoint)) == DEFAULT_RULE
    write_fusion(load_checkpoint(checkpoint), LinearFusion(0.375))
    again = load_checkpoint(checkpoint)
    assert read_fusion(again) == LinearFusion(0.375)
    write_manifest(checkpoint)
    assert FUSION in load_checkpoint(checkpoint).files


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 2}, "format 2 is not 1"),
        ({"lexical": 2.0}, "not a fusion rule: .*not from 0 to 1"),
        ({"lexical": None}, "not a fusion rule"),
        ({"fingerprint": "f" * 64}, "was fitted for checkpoint ffffffffffff"),
    ],
)
def test_a_wrong_rule_is_refused(
    checkpoint: Path, changed: dict[str, object], message: str
) -> None:
    write_fusion(load_checkpoint(checkpoint), LinearFusion(0.5))
    path = checkpoint / FUSION
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    with pytest.raises(CheckpointError, match=r"fusion\.json is not the file"):
        read_fusion(load_checkpoint(checkpoint))
    write_manifest(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        read_fusion(load_checkpoint(checkpoint))


def task(relevant: dict[str, dict[str, int]]) -> RetrievalTask:
    return RetrievalTask(
        ids=("q", "a", "b", "c"),
        query_ids=tuple(relevant),
        rows=np.zeros(len(relevant), dtype=np.int64),
        tokens=np.ones(len(relevant), dtype=np.int64),
        qrels=relevant,
    )


def test_the_weight_is_fitted_on_the_judgements() -> None:
    # a is best by neither channel; from 0.36 to 0.64 it is first by both together.
    semantic = system("semantic", [[1.0, 0.7, 1.0, 0.0]] * 4)
    lexical = system("lexical", [[1.0, 0.7, 0.0, 1.0]] * 4)
    corpus = FusionCorpus(task({"q": {"a": 1}}), semantic, lexical)
    fitted = fit_fusion([corpus, corpus])
    assert 0.3 < fitted.rule.lexical_weight < 0.7
    assert fitted.ndcg.shape == (2, len(fitted.weights))
    chosen = fitted.weights.index(fitted.rule.lexical_weight)
    assert fitted.ndcg[0, chosen] == pytest.approx(1.0)
    assert fitted.ndcg[0, 0] == fitted.ndcg[0, -1] == pytest.approx(1 / np.log2(3))
    assert fitted.reciprocal_rank.shape == (2,)

    useless = FusionCorpus(task({"q": {"b": 1}}), semantic, lexical)
    assert fit_fusion([useless]).rule.lexical_weight < 0.3
    with pytest.raises(ValueError, match="no corpus"):
        fit_fusion([])


def test_the_lexical_system_scores_as_the_index_does(tmp_path: Path) -> None:
    from encoder.blocks import Receipt
    from index.document import Document
    from index.store.document_store import SQLiteDocumentStore
    from index.store.records import EncodedDocument

    words = [f"w{n}" for n in range(40)]
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(words, size=30)) + f" own{n}" for n in range(25)]
    store = SQLiteDocumentStore(tmp_path / "s.sqlite3", fingerprint="a" * 64, dimension=2)
    vector = np.array([1, 0], dtype=np.float32)
    ids = store.put(
        [
            EncodedDocument(Document(str(n), t), vector, Receipt(1, 1, 1, 0))
            for n, t in enumerate(texts)
        ]
    ).added
    scored = lexical_system(texts)
    table = scored.score(np.arange(25))
    for row, text in enumerate(texts):
        served = store.lexical.score(store.lexical.read(text, stored=True), ids)
        np.testing.assert_allclose(served, table[row], atol=1e-5)
    np.testing.assert_allclose(
        scored.score_pairs(np.array([1, 2]), np.array([3, 2])), [table[1, 3], 1.0], atol=1e-5
    )
    store.close()
