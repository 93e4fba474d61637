from itertools import pairwise
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.corpora import write
from training.datasets.plagiarism import read_plagiarism

SOURCE = "".join(f"Sentence {number:03} of the source.\r\n" for number in range(40))
CASE = (
    '<feature name="plagiarism" type="artificial" this_offset="{}" this_length="{}" '
    'source_reference="{}" source_offset="{}" source_length="{}"/>'
)
ABOUT = '<feature name="about" authors="x" title="y" lang="en"/>'


def annotate(name: str, *cases: str) -> str:
    content = "".join([ABOUT, *cases])
    return (
        f'<?xml version="1.0" encoding="UTF-8"?><document reference="{name}">{content}</document>'
    )


def write_cases(folder: Path, count: int = 8) -> Path:
    """Suspicious documents that each have a passage of 66 characters of one of two sources."""
    for number in range(2):
        name = f"source-document0000{number}.txt"
        write(folder / "source-document/part1" / name, SOURCE.replace("source", f"source{number}"))
    for number in range(count):
        name = f"suspicious-document0000{number}"
        passage = f"Própria {number}: copied with another word or two in it."
        part = folder / "suspicious-document/part1"
        write(part / f"{name}.txt", f"Own start {number}. {passage} Own end.")
        length, source = len(passage), f"source-document0000{number % 2}.txt"
        case = CASE.format(13, length, source, 68 * number, 66)
        write(part / f"{name}.xml", annotate(f"{name}.txt", case))
    return folder


def test_cases_are_pairs_of_passages(tmp_path: Path) -> None:
    found = read_plagiarism(write_cases(tmp_path), SilentProgress())
    texts = {document.id: document.text for document in found.documents}
    pairs = [pair for some in found.pairs.values() for pair in some]
    assert [pair.label for pair in pairs].count(True) == 8
    assert [pair.label for pair in pairs].count(False) == 8
    copied = {f"source-document0000{n % 2}:{68 * n}+66": n for n in range(8)}
    for pair in pairs:
        number = int(texts[pair.source].split()[1].rstrip(":"))
        assert texts[pair.source] == f"Própria {number}: copied with another word or two in it."
        assert pair.label == (copied.get(pair.target) == number)
        assert len(texts[pair.target]) == 66
        if not pair.label:
            name, place = pair.target.split(":")
            begin = int(place.removesuffix("+66"))
            taken = [68 * n for n in range(8) if name.endswith(str(n % 2))]
            assert all(begin + 66 <= start or begin >= start + 66 for start in taken)
    assert [len(found.pairs[part]) for part in ("train", "valid", "test")] == [12, 2, 2]


def test_a_suspicious_document_is_in_one_part(tmp_path: Path) -> None:
    found = read_plagiarism(write_cases(tmp_path), SilentProgress())
    of_parts = [{pair.source.split(":")[0] for pair in some} for some in found.pairs.values()]
    assert sum(map(len, of_parts)) == len(set().union(*of_parts)) == 8


def test_a_wholly_copied_source_has_no_negative_pair(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", "all of it")
    write(tmp_path / "b.txt", "all of it")
    write(tmp_path / "a.xml", annotate("a.txt", CASE.format(0, 9, "b.txt", 0, 9)))
    found = read_plagiarism(tmp_path, SilentProgress())
    assert found.left_out == {"cases without a negative pair": 1}


GROWING = '<!ENTITY a "aaaaaaaaaa">' + "".join(
    f'<!ENTITY {longer} "{10 * f"&{entity};"}">' for entity, longer in pairwise("abcdefgh")
)


@pytest.mark.parametrize(
    ("xml", "error"),
    [
        ("<document>\n<feature</document>", "1.xml:2: is not XML"),
        (f'<!DOCTYPE d [{GROWING}]><document reference="&h;"/>', "1.xml:1: is not XML: "),
        (
            annotate("suspicious-document00001.txt", CASE.format(0, "x", "s", 0, 1)),
            "this_length: i",
        ),
        (
            annotate(
                "suspicious-document00001.txt",
                CASE.format(0, 9, "source-document00000.txt", 9_000, 9),
            ),
            "the passage at 9000 of 9 characters is not in",
        ),
        (annotate("gone.txt", CASE.format(0, 1, "s.txt", 0, 1)), "there is no document 'gone.txt'"),
        (
            annotate(
                "suspicious-document00001.txt",
                '<feature name="plagiarism" source_reference="source-document00000.txt"/>',
            ),
            "this_offset: is missing",
        ),
    ],
)
def test_a_wrong_annotation_is_named(tmp_path: Path, xml: str, error: str) -> None:
    folder = write_cases(tmp_path)
    path = folder / "suspicious-document/part1/suspicious-document00001.xml"
    write(path, xml)
    with pytest.raises(CorpusError, match=error) as raised:
        read_plagiarism(folder, SilentProgress())
    assert str(path) in str(raised.value)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"there is no .xml file of annotations"):
        read_plagiarism(tmp_path, SilentProgress())
    write(tmp_path / "a.xml", annotate("a.txt"))
    with pytest.raises(CorpusError, match=r"there is no .txt file of a document"):
        read_plagiarism(tmp_path, SilentProgress())
    write(tmp_path / "a.txt", "text")
    with pytest.raises(CorpusError, match="no annotation is a case of plagiarism"):
        read_plagiarism(tmp_path, SilentProgress())
    write(tmp_path / "other/a.txt", "text")
    with pytest.raises(CorpusError, match=r"a.txt has the same name"):
        read_plagiarism(tmp_path, SilentProgress())
