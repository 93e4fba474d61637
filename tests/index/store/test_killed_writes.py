"""A writer that is killed leaves documents, words and families of one state."""

import inspect
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from index.doctor.store_checks import examine_families
from index.lexical.terms import count_terms, is_pair
from index.store.document_store import SQLiteDocumentStore
from tests.index.conftest import sql
from tests.tools.index_fixtures import OpenStore

REPOSITORY = Path(__file__).parents[3]


def term_frequencies(path: Path) -> dict[str, int]:
    return dict(sql(path, "SELECT term, documents FROM terms"))


def documents_with(store: SQLiteDocumentStore, text: str) -> set[str]:
    matches = store.lexical.search(store.lexical.read(text), 1000)
    return {summary.id for summary in store.get(matches.vector_ids.tolist()).values()}


def start(code: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def write_until_killed() -> None:
    import itertools
    import sys
    from pathlib import Path

    import numpy as np

    from encoder.blocks import Receipt
    from index.document import Document
    from index.store.document_store import SQLiteDocumentStore
    from index.store.records import EncodedDocument

    store = SQLiteDocumentStore(Path(sys.argv[1]), fingerprint="a" * 64, dimension=16)
    vector = np.eye(16, dtype=np.float32)[0]
    output = sys.stdout
    output.write("started\n")
    output.flush()
    for number in itertools.count():
        names = [f"d{(number + n) % 40}" for n in range(8)]
        texts = [f"state{number} of {name} " + f"filler{number} " * 50 for name in names]
        documents = [Document(name, text) for name, text in zip(names, texts, strict=True)]
        store.put(
            [EncodedDocument(document, vector, Receipt(1, 1, 1, 0, 1)) for document in documents]
        )
        output.write(f"{number}\n")
        output.flush()
        if number % 3 == 0:
            store.delete(names[:3])


def test_a_kill_while_writing_leaves_words_and_documents_alike(
    open_store: OpenStore, tmp_path: Path
) -> None:
    path = tmp_path / "killed" / "store.sqlite3"
    path.parent.mkdir()
    code = f"{inspect.getsource(write_until_killed)}\nwrite_until_killed()"
    acknowledged = -1
    for turn in range(3):
        process = start(code, path)
        time.sleep(random.Random(turn).uniform(0.1, 0.4))
        process.send_signal(signal.SIGKILL)
        output = process.communicate()[0].split()
        acknowledged = int(output[-1]) if output and output[-1].isdigit() else acknowledged
        store = open_store(path)
        texts = dict(sql(path, "SELECT id, text FROM documents"))
        frequencies: dict[str, int] = {}
        for text in texts.values():
            for term in count_terms(text):
                frequencies[term] = frequencies.get(term, 0) + 1
        assert term_frequencies(path) == frequencies
        assert list(examine_families(path)) == []
        assert store.families.pending() == 0
        named = [term for term in frequencies if term.startswith(("state", "d"))]
        for term in [term for term in named if not is_pair(term)]:
            assert documents_with(store, term) == {
                n for n, t in texts.items() if term in count_terms(t)
            }
        store.close()
    assert acknowledged > 0
