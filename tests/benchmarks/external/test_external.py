"""A checkpoint in MTEB's and BEIR's own evaluation code, on data of this test, offline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.external.document_encoder import DocumentEncoder

# Both packages and theirs warn at import.
pytestmark = pytest.mark.filterwarnings("ignore")

CORPUS = {
    "ants": ("Ants", "Ants live in colonies. Workers carry leaves and seeds home."),
    "bees": ("Bees", "Bees live in hives. Workers carry nectar and pollen home."),
    "law": ("Tax law", "The tribunal held that the assessment was void."),
    "rivers": ("", "Rivers carve valleys over thousands of years."),
    "nothing": ("", " "),
}
# A query is the whole text of a document, so that every encoder finds it first.
QUERIES = {f"q-{name}": f"{CORPUS[name][0]} {CORPUS[name][1]}" for name in ("ants", "bees", "law")}
QRELS = {query: {query[2:]: 1} for query in QUERIES}
WRONG = {query: {"rivers": 1} for query in QUERIES}


@pytest.fixture(scope="module")
def encoder(tiny_checkpoint: Path) -> DocumentEncoder:
    return DocumentEncoder(tiny_checkpoint, precision="fp32", threads=1)


@pytest.mark.slow
def test_texts_are_encoded_in_their_order(encoder: DocumentEncoder) -> None:
    texts = ["", *[f"Text {n} is about rivers." for n in range(70)], "\n"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (72, encoder.dimension)
    assert (np.linalg.norm(vectors, axis=1) > 0.5).tolist() == [False, *[True] * 70, False]
    np.testing.assert_allclose(vectors[66], encoder.encode([texts[66]])[0], atol=1e-5)


def write_collection(folder: Path, qrels: dict[str, dict[str, int]]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": i, "title": title, "text": text} for i, (title, text) in CORPUS.items()]
    queries = [{"_id": i, "text": text} for i, text in QUERIES.items()]
    for name, lines in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    rows = [f"{q}\t{d}\t{score}\n" for q, found in qrels.items() for d, score in found.items()]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return folder


def test_beir_evaluates_a_checkpoint(encoder: DocumentEncoder, tmp_path: Path) -> None:
    from benchmarks.external.beir_collection import BeirModel, evaluate_collection

    model = BeirModel(encoder)
    good = evaluate_collection(write_collection(tmp_path / "good", QRELS), "test", model)
    assert (good["NDCG@1"], good["Recall@10"]) == (1.0, 1.0)
    wrong = evaluate_collection(write_collection(tmp_path / "wrong", WRONG), "test", model)
    assert wrong["NDCG@1"] == 0.0
    assert wrong["Recall@10"] == 1.0


def local_task(qrels: dict[str, dict[str, int]]) -> Any:
    """Return a task of MTEB whose data is here."""
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class LocalRetrieval(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="LocalRetrieval",
            description="Documents of a test.",
            dataset={"path": "local", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_1",
        )

        def load_data(self, **_: Any) -> None:
            ids, texts = list(CORPUS), list(CORPUS.values())
            self.dataset = {
                "default": {
                    "test": {
                        "corpus": Dataset.from_dict(
                            {
                                "id": ids,
                                "title": [title for title, _ in texts],
                                "text": [text for _, text in texts],
                            }
                        ),
                        "queries": Dataset.from_dict(
                            {"id": list(QUERIES), "text": list(QUERIES.values())}
                        ),
                        "relevant_docs": qrels,
                        "top_ranked": None,
                    }
                }
            }
            self.data_loaded = True

    return LocalRetrieval()


@pytest.mark.slow
def test_mteb_evaluates_a_checkpoint(
    encoder: DocumentEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTEB_CACHE", str(tmp_path / "cache"))  # it makes one at import
    from benchmarks.external.mteb_tasks import MtebModel, evaluate_tasks

    model = MtebModel(encoder)
    good = evaluate_tasks([local_task(QRELS)], model, tmp_path / "results")
    assert good == {"LocalRetrieval": 1.0}
    assert evaluate_tasks([local_task(WRONG)], model, None) == {"LocalRetrieval": 0.0}
    [kept] = (tmp_path / "results").rglob("LocalRetrieval.json")
    assert json.loads(kept.read_text())["scores"]["test"][0]["ndcg_at_1"] == 1.0
    assert encoder.checkpoint.name in str(kept)
