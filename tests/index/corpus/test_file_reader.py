"""Files are read by a child process: its limits, its end, and what the next file sees of both."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from index.corpus.file_reader import FileReader, ReadingLimits
from index.corpus.reader import read_corpus
from index.document import Document, SkippedInput
from index.errors import CorpusError
from tests.kit.corpora import write
from tests.kit.pdf_files import pdf, pdf_of_operators
from tests.kit.process_fixtures import LISTEN_TO_CTRL_C

LIMITS = ReadingLimits(memory_bytes=768 * 2**20)
# 65 kB; each operator copies those that are open, which is 10 GB of them all.
HUNGRY_PDF = pdf_of_operators(b"/P <</A 1>> BDC ", 2_000_000)
SLOW_PAGE = "<" * 40_000_000  # one event of the parser for each


def pid_of(reader: FileReader) -> int:
    assert reader._child is not None
    return reader._child.pid


def is_running(pid: int) -> bool:
    shown = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return shown.stdout.strip()[:1] not in ("", "Z")


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("did not happen within 30 seconds")


def test_one_child_reads_many_files(tmp_path: Path) -> None:
    with FileReader() as reader:
        assert reader._child is None
        pids = set()
        for number in range(5):
            assert (
                reader.read(write(tmp_path / "x.txt", f"Text {number}.")).text == f"Text {number}."
            )
            pids.add(pid_of(reader))
        assert len(pids) == 1
    assert not is_running(pids.pop())


def test_a_file_that_takes_too_much_memory_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("index.corpus.reader.FileReader", partial(FileReader, LIMITS))
    write(tmp_path / "a.txt", "First.")
    write(tmp_path / "b.pdf", HUNGRY_PDF)
    write(tmp_path / "c.pdf", pdf(["Third."]))
    assert len(HUNGRY_PDF) < 100_000
    first, second, third = read_corpus(tmp_path)
    assert isinstance(first, Document)
    assert isinstance(second, SkippedInput)
    assert second.where == "b.pdf"
    assert "takes more than 768 MiB of memory to read" in second.reason
    assert isinstance(third, Document)
    assert (first.id, third.id, third.text) == ("a.txt", "c.pdf", "Third.")


@pytest.mark.slow
def test_memory_is_examined_where_the_kernel_does_not_limit_it(tmp_path: Path) -> None:
    with FileReader(replace(LIMITS, enforced=False)) as reader:
        with pytest.raises(CorpusError, match=r"^takes more than 768 MiB of memory to read$"):
            reader.read(write(tmp_path / "x.pdf", HUNGRY_PDF))
        assert reader.read(write(tmp_path / "x.txt", "Text.")).text == "Text."


@pytest.mark.slow
def test_a_large_ordinary_page_takes_little_memory(tmp_path: Path) -> None:
    paragraph = '<p>Some words of an <b>ordinary</b> page, <a href="x.html">a link</a>.</p>\n'
    path = write(tmp_path / "x.html", paragraph * 100_000)  # with a tree of it, 470 MB
    with FileReader(ReadingLimits(memory_bytes=384 * 2**20)) as reader:
        assert reader.read(path).text.count("ordinary page, a link.") == 100_000


def test_a_file_that_takes_too_long_is_refused(tmp_path: Path) -> None:
    page = write(tmp_path / "x.html", SLOW_PAGE)
    with FileReader(replace(LIMITS, cpu_seconds=1)) as reader:
        with pytest.raises(CorpusError, match="takes more than 1 seconds of processor time"):
            reader.read(page)
        assert reader.read(write(tmp_path / "x.txt", "Text.")).text == "Text."


def test_a_child_that_hangs_or_was_killed_is_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "Text.")
    with FileReader(replace(LIMITS, wait_seconds=8)) as reader:
        reader.read(path)
        hung = pid_of(reader)
        os.kill(hung, signal.SIGSTOP)
        # The request is sent to a new child, since it may have hung of an earlier file.
        assert reader.read(path).text == "Text."
        killed = pid_of(reader)
        assert killed != hung
        assert not is_running(hung)
        os.kill(killed, signal.SIGKILL)
        assert reader.read(path).text == "Text."
        assert pid_of(reader) != killed


def test_files_can_be_read_from_several_threads(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.pdf" for number in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(pdf([f"Document {number} page {page}" for page in range(5)]))
    with FileReader() as reader, ThreadPoolExecutor(8) as pool:
        texts = [content.text for content in pool.map(reader.read, paths)]
    assert [text.split("\n")[0] for text in texts] == [f"Document {n} page 0" for n in range(40)]


def test_a_corpus_that_is_not_read_to_its_end_leaves_no_child(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        write(tmp_path / name, "Text.")
    corpus = read_corpus(tmp_path)
    next(corpus)
    [child] = children(os.getpid())
    del corpus
    wait_until(lambda: not is_running(child))


PARENT = """
import sys
from pathlib import Path
from index.corpus.file_reader import FileReader
reader = FileReader()
reader.read(Path(sys.argv[1]))
print(reader._child.pid, flush=True)
reader.read(Path(sys.argv[2]))
"""


def children(pid: int) -> list[int]:
    command = ["ps", "-A", "-ww", "-o", "pid=", "-o", "ppid=", "-o", "command="]
    shown = subprocess.run(command, capture_output=True, text=True)
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()]
    return [int(row[0]) for row in rows if int(row[1]) == pid and "file_reader" in row[2]]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_child_outlives_its_parent(tmp_path: Path, sent: signal.Signals) -> None:
    usual, slow = write(tmp_path / "x.txt", "Text."), write(tmp_path / "x.html", SLOW_PAGE)
    with subprocess.Popen(
        [sys.executable, "-c", f"{LISTEN_TO_CTRL_C}\n{PARENT}", str(usual), str(slow)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.3)  # it is reading the slow page now
        assert is_running(child)
        if sent is signal.SIGINT:  # as a terminal sends it: to the child, too
            os.killpg(parent.pid, sent)
        else:
            parent.send_signal(sent)
        _, said = parent.communicate(timeout=120)
    wait_until(lambda: not is_running(child))
    assert said.count("Traceback") == (sent is signal.SIGINT)  # of the parent alone
