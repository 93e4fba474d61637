"""Systems of an evaluation score as the index does."""

from pathlib import Path

import numpy as np

from encoder.blocks import Receipt
from evaluation.systems import lexical_system
from index.document import Document
from index.store.document_store import SQLiteDocumentStore
from index.store.records import EncodedDocument


def test_the_lexical_system_scores_as_the_index_does(tmp_path: Path) -> None:
    words = [f"w{n}" for n in range(40)]
    random = np.random.default_rng(3)
    texts = [" ".join(random.choice(words, size=30)) + f" own{n}" for n in range(25)]
    store = SQLiteDocumentStore(tmp_path / "s.sqlite3", fingerprint="a" * 64, dimension=2)
    vector = np.array([1, 0], dtype=np.float32)
    ids = store.put(
        [
            EncodedDocument(Document(str(n), t), vector, Receipt(1, 1, 1, 0, 1))
            for n, t in enumerate(texts)
        ]
    ).added
    scored = lexical_system(texts)
    table = scored.score(np.arange(25))
    for row, vector_id in enumerate(ids.tolist()):
        served = store.lexical.score(store.lexical.read_stored(vector_id), ids)
        np.testing.assert_allclose(served, table[row], atol=1e-5)
    np.testing.assert_allclose(
        scored.score_pairs(np.array([1, 2]), np.array([3, 2])), [table[1, 3], 1.0], atol=1e-5
    )
    store.close()
