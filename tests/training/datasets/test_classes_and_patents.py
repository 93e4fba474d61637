from collections import defaultdict
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.tools.corpora import json_lines, write
from training.data import files
from training.datasets.classes import LINKS, find_classes, read_classes
from training.datasets.convert import convert_dataset
from training.datasets.patents import check_patents, read_patents

CLASSES = ("cs.AI", "math.GR", "cs.CV")


def write_classes(path: Path, count: int = 60) -> Path:
    lines = (f"{CLASSES[n % 3]}\tA paper, number {n}.\n" for n in range(count))
    return write(path, "".join(lines))


def test_documents_of_one_class_match(tmp_path: Path) -> None:
    found = read_classes(write_classes(tmp_path / "arxiv.tsv"), 0, SilentProgress())
    class_of = {document.id: document.metadata["class"] for document in found.documents}
    assert sorted(found.parts.values()).count("train") == 48
    assert sorted(found.parts.values()).count("valid") == 6
    judged = defaultdict(set)
    for query, document, relevance in found.judgements:
        assert relevance == 1
        assert class_of[query] == class_of[document]
        assert query != document
        judged[query].add(document)
    for name, part in found.parts.items():
        if part == "train":
            assert len(judged[name]) == LINKS
            assert all(name in judged[other] for other in judged[name])
            assert {found.parts[other] for other in judged[name]} == {"train"}
        else:  # all of the class
            assert len(judged[name]) == 19


def test_training_reads_the_classes_of_the_corpus_that_is_made(tmp_path: Path) -> None:
    source = write_classes(tmp_path / "arxiv.tsv", 12)
    convert_dataset("classes", source, tmp_path / "made", 0, SilentProgress())
    classes = files.read_classes(tmp_path / "made")
    assert classes == {f"arxiv-{n + 1}": CLASSES[n % 3] for n in range(12)}
    files.check_classes([files.find_corpus_files(tmp_path / "made")])


def test_held_out_classes_teach_nothing(tmp_path: Path) -> None:
    records = [{"id": f"d{n}", "text": "A text.", "class": n % 2} for n in range(6)]
    write(tmp_path / "corpus.jsonl", json_lines(records))
    found = files.find_corpus_files(tmp_path)
    files.check_classes([found])
    parts = ["train", "train", "train", "valid", "test", "test"]  # of class 1 one is trained on
    write(tmp_path / "splits.tsv", "".join(f"d{n}\t{part}\n" for n, part in enumerate(parts)))
    with pytest.raises(CorpusError, match="no corpus has two of at least two documents"):
        files.check_classes([files.find_corpus_files(tmp_path)])


def test_objects_with_a_label_are_read(tmp_path: Path) -> None:
    records = [
        {"label": n % 2, "text": f"Text {n}", **({"id": "own"} if n == 0 else {})} for n in range(4)
    ]
    write(tmp_path / "a.jsonl", json_lines(records))
    found = read_classes(tmp_path, 0, SilentProgress())
    assert [document.id for document in found.documents] == ["own", "a-2", "a-3", "a-4"]
    assert set(found.judgements) == {
        *{("own", "a-3", 1), ("a-3", "own", 1)},
        *{("a-2", "a-4", 1), ("a-4", "a-2", 1)},
    }


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("cs.AI\tA\nno tab\n", "a.tsv:2: is not a class, a tab and a text"),
        ("cs.AI\tA\ncs.CV\t \n", "a.tsv:2: text: is empty"),
        ("cs.AI\tA\ncs.AI\tB\n", "have fewer than two classes"),
    ],
)
def test_a_wrong_class_is_named(tmp_path: Path, content: str, error: str) -> None:
    with pytest.raises(CorpusError, match=error):
        read_classes(write(tmp_path / "a.tsv", content), 0, SilentProgress())


def test_a_repeated_id_and_a_missing_label_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"label": "x", "text": "b", "id": "c"}\n' * 2)
    with pytest.raises(CorpusError, match=r"a.jsonl:2: the id 'c' already occurs"):
        read_classes(path, 0, SilentProgress())
    write(path, '{"text": "b"}\n')
    with pytest.raises(CorpusError, match=r"a.jsonl:1: label: is missing"):
        read_classes(path, 0, SilentProgress())
    with pytest.raises(CorpusError, match="there is no such file or folder"):
        find_classes(tmp_path / "gone")


def patent(number: int) -> dict[str, object]:
    def texts(text: str) -> list[dict[str, str]]:
        return [{"text": "nein", "language": "de"}, {"text": text, "language": "en"}]

    return {
        "publication_number": f"US-{number}-B2",
        "title_localized": texts(f"Device {number}"),
        "claims_localized": texts(f"1. A device {number}."),
        "description_localized": texts(f"The device {number} has parts."),
    }


def write_patents(folder: Path, pairs: str | None = None) -> Path:
    write(folder / "patents.jsonl", json_lines(map(patent, range(20))))
    lines = "".join(f"{n % 2}\tUS-{n}-B2\tUS-{(n + 1) % 20}-B2\n" for n in range(20))
    write(folder / "pairs.tsv", lines if pairs is None else pairs)
    return folder


def test_patents_are_claims_and_description(tmp_path: Path) -> None:
    found = read_patents(write_patents(tmp_path), 0, SilentProgress())
    first = next(document for document in found.documents if document.id == "US-0-B2")
    assert first.title == "Device 0"
    text = "# Claims\n\n1. A device 0.\n\n# Description\n\nThe device 0 has parts."
    assert first.text == text
    assert [len(found.pairs[part]) for part in ("train", "valid", "test")] == [16, 2, 2]


@pytest.mark.parametrize(
    ("pairs", "error"),
    [
        ("1\tUS-0-B2\tUS-99-B2\n", "pairs.tsv:1: there is no patent 'US-99-B2'"),
        ("1\tUS-0-B2\tUS-1-B2\n0\tUS-1-B2\tUS-0-B2\n", "pairs.tsv:2: .* have another label"),
        ("yes\tUS-0-B2\tUS-1-B2\n", "pairs.tsv:1: the label is 'yes', not 0 or 1"),
        ("", "pairs.tsv: is empty"),
    ],
)
def test_a_wrong_pair_of_patents_is_named(tmp_path: Path, pairs: str, error: str) -> None:
    with pytest.raises(CorpusError, match=error):
        read_patents(write_patents(tmp_path, pairs), 0, SilentProgress())


def test_what_is_missing_of_patents_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="there is no file of patents"):
        check_patents(tmp_path)
    write(tmp_path / "patents.jsonl", '{"publication_number": "a", "claims_localized": "b"}')
    with pytest.raises(CorpusError, match=r"pairs.tsv: there is no such file"):
        check_patents(tmp_path)
    write(tmp_path / "pairs.tsv", "1\ta\tb\n")
    with pytest.raises(CorpusError, match="jsonl:1: claims_localized: is not a list of texts"):
        read_patents(tmp_path, 0, SilentProgress())
