import gzip
import os
import re
from pathlib import Path

import pytest

from index.corpus import reader
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.optional_dependencies import MissingExtraError
from tests.kit.corpora import documents, ids, json_lines, refusals, write
from tests.kit.office_files import archive, epub_parts


def test_a_folder_gives_files_of_known_kinds_sorted(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "Second.")
    write(tmp_path / "a" / "z.md", "# Notes\n\nText.")
    write(tmp_path / "a" / "deep" / "er" / "x.rst", "Title\n=====\n\nText.")
    write(tmp_path / "A.HTM", "<title>Upper</title><p>Text.")
    write(tmp_path / "folder.txt" / "y.txt", "Text.")
    write(tmp_path / "picture.png", b"\x89PNG")
    write(tmp_path / "other.jsonl", json_lines([{"id": "1", "text": "Text."}]))
    write(tmp_path / "no-suffix", "Text.")
    assert ids(tmp_path) == ["A.HTM", "a/deep/er/x.rst", "a/z.md", "b.txt", "folder.txt/y.txt"]
    found = documents(tmp_path)
    assert [document.title for document in found] == ["Upper", "Title", "Notes", "Second.", "Text."]
    assert found[2].text == "# Notes\n\nText."
    unread = [item for item in reader.read_corpus(tmp_path) if isinstance(item, SkippedInput)]
    assert unread == [
        SkippedInput("no suffix", "a file that no reader takes: no-suffix", lost=False),
        SkippedInput(
            "*.jsonl",
            "a file that no reader takes: other.jsonl; a corpus of its own: longmatch index "
            "other.jsonl",
            lost=False,
        ),
        SkippedInput("*.png", "a file that no reader takes: picture.png", lost=False),
    ]
    assert reader.count_documents(tmp_path) == 8  # with what is said of other files


def test_a_document_has_the_fields_of_its_file(tmp_path: Path) -> None:
    page = b"<meta name=author content=Ann><p>" + b"Die Fluesse tragen kaltes Wasser. " * 9
    write(tmp_path / "a.html", page)
    book = write(tmp_path / "b.epub", archive(epub_parts({"a.xhtml": "<p>Text."})))
    book.write_bytes(
        archive(epub_parts({"a.xhtml": "Text.", "b.xhtml": ""}) | {"OEBPS/b.xhtml": b"\xff"})
    )
    first, second, part = reader.read_corpus(tmp_path)
    assert isinstance(first, Document)
    assert first.metadata == {"author": "Ann", "language": "de"}
    assert isinstance(second, Document)
    assert part == SkippedInput("b.epub", "OEBPS/b.xhtml: is not UTF-8 at byte 0")


def test_the_extra_that_reads_a_kind_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.txt", "Text.")
    letter = write(tmp_path / "letter.odt", b"x")
    for module in ("optional_dependencies", "corpus.formats.extra"):
        monkeypatch.setattr(f"index.{module}.find_spec", lambda name: None)
    [_, remark] = reader.read_corpus(tmp_path)
    assert isinstance(remark, SkippedInput)
    assert remark.reason.endswith("letter.odt; pip install 'longmatch[formats]' reads them")
    with pytest.raises(MissingExtraError, match=r"reading \.odt needs the extra 'formats'"):
        reader.read_document(letter)


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / ".hidden.txt", "Text.")
    write(tmp_path / ".git" / "notes.txt", "Text.")
    write(tmp_path / "seen.txt", "Text.")
    assert ids(tmp_path) == ["seen.txt"]
    assert ids(tmp_path / ".git") == ["notes.txt"]
    (tmp_path / "link").symlink_to(tmp_path / ".git")  # a corpus may itself be a link
    assert ids(tmp_path / "link") == ["notes.txt"]


def test_a_file_that_disappears_is_skipped(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "First.")
    gone = write(tmp_path / "b.txt", "Second.")
    corpus = reader.read_corpus(tmp_path)
    next(corpus)
    gone.unlink()
    last = next(corpus)
    assert isinstance(last, SkippedInput)
    assert last.where == "b.txt"


def test_links_within_a_corpus_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "z" / "x.txt", "Text.")
    (tmp_path / "z" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "a").symlink_to(tmp_path / "z")
    assert ids(tmp_path) == ["z/x.txt"]


def test_folders_outside_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "one" / "x.txt", "Text.")
    write(tmp_path / "two" / "y.txt", "Text.")
    for name in ("again", "two"):
        (tmp_path / "one" / name).symlink_to(tmp_path / "two")
    (tmp_path / "two" / "one").symlink_to(tmp_path / "one")
    assert ids(reader.Folder(tmp_path / "one", follow_links=True)) == ["again/y.txt", "x.txt"]


def test_links_out_of_the_corpus_need_follow_links(tmp_path: Path) -> None:
    write(tmp_path / "secret.txt", "Secret.")
    write(tmp_path / "outside" / "y.txt", "Secret.")
    write(tmp_path / "corpus" / "deep" / "x.txt", "Text.")
    corpus = tmp_path / "corpus"
    (corpus / "passwords.txt").symlink_to("/etc/passwd")
    (corpus / "deep" / "secret.txt").symlink_to("../../secret.txt")
    (corpus / "deep" / "twice.txt").symlink_to("secret.txt")
    (corpus / "folder").symlink_to(tmp_path / "outside")
    (corpus / "within.txt").symlink_to("deep/x.txt")
    (corpus / "picture.png").symlink_to("/etc/passwd")
    assert [document.id for document in documents(corpus)] == ["deep/x.txt", "within.txt"]
    assert refusals(corpus) == dict.fromkeys(
        ["deep/secret.txt", "deep/twice.txt", "folder", "passwords.txt"], reader.LINK_OUT
    )
    assert reader.count_documents(corpus) == 7
    assert ids(reader.Folder(corpus, follow_links=True)) == [
        *("deep/secret.txt", "deep/twice.txt", "deep/x.txt", "folder/y.txt"),
        *("passwords.txt", "within.txt"),
    ]
    changed = {"deep", "deep/x.txt", "deep/gone.txt", "folder/y.txt", "within.txt"}
    part = reader.Folder(corpus, names=changed)
    assert [document.id for document in documents(part)] == ["deep/x.txt", "within.txt"]
    assert sorted(refusals(part)) == ["deep/secret.txt", "deep/twice.txt"]


def test_a_beir_corpus_file_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "real.jsonl", json_lines([{"id": "1", "text": "Text."}]))
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "corpus.jsonl").symlink_to(tmp_path / "real.jsonl")
    with pytest.raises(CorpusError, match="--follow-links"):
        reader.read_corpus(tmp_path / "corpus")
    assert ids(reader.Folder(tmp_path / "corpus", follow_links=True)) == ["1"]


def test_bad_files_are_refused_by_name_and_the_rest_goes_on(tmp_path: Path) -> None:
    write(tmp_path / "a" / "other.txt", b"a\xff")
    write(tmp_path / "broken.pdf", b"%PDF-1.4 and nothing more")
    write(tmp_path / "empty.txt", b"")
    write(tmp_path / "good.txt", "Text.")
    write(tmp_path / "space.md", " \n\t\n")
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self.txt").symlink_to(tmp_path / "self.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    assert [document.id for document in documents(tmp_path)] == ["good.txt"]
    found = refusals(tmp_path)
    names = "a/other.txt broken.pdf empty.txt gone.txt pipe.txt self.txt space.md"
    assert sorted(found) == names.split()
    assert found["a/other.txt"] == "is not UTF-8 at byte 1"
    assert found["empty.txt"] == "has no text"


@pytest.mark.parametrize("name", [b"caf\xe9.txt", b"two\nlines.txt"])
def test_a_file_name_that_cannot_be_an_id_is_refused(tmp_path: Path, name: bytes) -> None:
    try:
        write(Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)), "Text.")
    except OSError:  # macOS has no file names that are not UTF-8
        return
    [(where, reason)] = refusals(tmp_path).items()
    assert where.isprintable()
    assert reason.startswith("id: ")


def test_one_file_is_a_corpus_of_one_document(tmp_path: Path) -> None:
    assert ids(write(tmp_path / "x" / "paper.md", "# Paper\n\nText.")) == ["paper.md"]


def test_what_is_no_corpus_is_refused_at_the_call(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    write(tmp_path / "x.png", "Text.")
    for name in ("missing", "missing.jsonl", "pipe.jsonl", "self", "x.png", "nul\0.txt"):
        with pytest.raises(CorpusError, match=name.partition("\0")[0]):
            reader.read_corpus(tmp_path / name)


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_a_beir_folder_is_its_corpus_file(tmp_path: Path, name: str) -> None:
    records = json_lines([{"_id": "d1", "title": "T", "text": "Text.", "metadata": {"url": "u"}}])
    write(tmp_path / name, gzip.compress(records.encode()) if name.endswith("gz") else records)
    write(tmp_path / "queries.jsonl", json_lines([{"_id": "q1", "text": "Query."}]))
    write(tmp_path / "README.md", "About.")
    expected = Document(id="d1", text="Text.", title="T", metadata={"url": "u"})
    assert list(reader.read_corpus(tmp_path)) == [expected]
    assert ids(tmp_path / "queries.jsonl") == ["q1"]


def test_read_document_gives_one_file_under_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "x" / "paper.txt", "\n  A paper\n\nText.\n")
    expected = Document(id="paper.txt", text="\n  A paper\n\nText.\n", title="A paper")
    assert reader.read_document(path) == expected


def test_read_document_names_the_file_it_cannot_read(tmp_path: Path) -> None:
    write(tmp_path / "bad.txt", b"\xff")
    write(tmp_path / "x.png", "Text.")
    write(tmp_path / "x.jsonl", json_lines([{"id": "1", "text": "Text."}]))
    os.mkfifo(tmp_path / "pipe.txt")
    for name in ("bad.txt", "x.png", "x.jsonl", "pipe.txt", "missing.txt", "."):
        with pytest.raises(CorpusError, match=re.escape(str(tmp_path / name))):
            reader.read_document(tmp_path / name)
