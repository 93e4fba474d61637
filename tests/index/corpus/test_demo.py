import json
import re
import sys
from pathlib import Path

import pytest

from index.corpus.demo import write_stdlib_corpus
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError


@pytest.fixture(scope="module")
def corpus(stdlib_corpus: Path) -> dict[str, Document]:
    found = list(read_corpus(stdlib_corpus))
    assert all(isinstance(item, Document) for item in found)
    assert len(found) == len(stdlib_corpus.read_text(encoding="utf-8").splitlines())
    assert [entry.name for entry in stdlib_corpus.parent.iterdir()] == ["stdlib.jsonl"]
    return {document.id: document for document in found}


def test_the_number_and_length_of_documents(corpus: dict[str, Document]) -> None:
    words = sorted(len(document.text.split()) for document in corpus.values())
    assert 180 <= len(words) <= 400  # some modules are not everywhere
    assert words[0] >= 150
    assert words[len(words) // 2] >= 400
    assert 3_000 < words[-1] <= 12_000


def test_a_document_says_what_its_module_documents(corpus: dict[str, Document]) -> None:
    expected = {"argparse", "asyncio.queues", "email.message", "heapq", "inspect"}
    expected |= {"json.decoder", "os", "socket", "unittest.mock"}
    assert expected <= corpus.keys()
    assert corpus["heapq"].title == "heapq: Heap queue algorithm (a.k.a. priority queue)."
    assert corpus["asyncio.streams"].title == "asyncio.streams"
    assert "class JSONDecoder" in corpus["json.decoder"].text
    assert "class JSONDecoder" not in corpus["json"].text
    text = corpus["queue"].text
    assert text.startswith("queue\n\nA multi-producer, multi-consumer queue.")
    assert "class LifoQueue(Queue)\n    Variant of Queue that retrieves most recently" in text
    assert "Queue.get(block, timeout)\n    Remove and return an item from the queue." in text


def test_nothing_of_this_machine_and_no_boilerplate(corpus: dict[str, Document]) -> None:
    prefixes = {sys.prefix, sys.base_prefix, str(Path.home()), str(Path.cwd())} - {"/", "/usr"}
    unwanted = re.compile(
        r"__weakref__|Method resolution order|Methods inherited from|Data descriptors defined here"
        r"|Return self<value|See help\(type\(self\)\) for accurate signature|Alias for field number"
        rf"|\x08| at 0x[0-9a-f]+|{'|'.join(map(re.escape, prefixes))}"
    )
    assert [name for name in corpus if unwanted.search(corpus[name].text)] == []


def test_tests_programs_and_private_modules_are_not_there(corpus: dict[str, Document]) -> None:
    tops = {name.partition(".")[0] for name in corpus}
    assert not tops & {"idlelib", "test", "tkinter", "turtle", "__main__"}
    assert not [name for name in corpus if re.search(r"(^|\.)_|\.tests?$", name)]


@pytest.mark.slow
def test_the_place_it_runs_in_changes_nothing(
    corpus: dict[str, Document], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(sys.modules)
    (tmp_path / "heapq.py").write_text('"""Not the real one."""')
    monkeypatch.chdir(tmp_path)
    write_stdlib_corpus(Path("stdlib.jsonl"))
    assert set(sys.modules) == before
    lines = (json.loads(line) for line in Path("stdlib.jsonl").read_text().splitlines())
    assert {line["id"]: line["text"] for line in lines} == {
        name: document.text for name, document in corpus.items()
    }


def test_a_python_without_sources_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stdlib.jsonl"
    path.write_text("old")
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(CorpusError, match="has no sources"):
        write_stdlib_corpus(path)
    assert path.read_text() == "old"
