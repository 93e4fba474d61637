from collections import Counter
from pathlib import Path

import pytest

from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit.chinese_news import EVENTS, news_lines, write_news
from training.datasets.pair_tables import read_news


def read(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines), encoding="utf-8")
    read_news(path, SilentProgress())


def test_articles_and_pairs_are_read(tmp_path: Path) -> None:
    write_news(tmp_path / "same_event_doc_pair.txt")
    found = read_news(tmp_path, SilentProgress())
    texts = {document.id: document.text for document in found.documents}
    assert sorted(texts.values()) == sorted(text for both in EVENTS.values() for text in both)
    pairs = [pair for some in found.pairs.values() for pair in some]
    assert Counter(pair.label for pair in pairs) == {True: 6, False: 12}
    # six to two to two, for each label
    assert [len(found.pairs[part]) for part in ("train", "valid", "test")] == [11, 4, 3]
    assert all(len({pair.label for pair in some}) == 2 for some in found.pairs.values())
    events = {text: event for event, both in EVENTS.items() for text in both}
    for pair in pairs:
        same = events[texts[pair.source]] == events[texts[pair.target]]
        assert pair.label == same


def test_an_id_of_two_texts_is_two_documents(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_text("1|a|b|t|t|一|二\n0|a|c|t|t|三|四\n")
    found = read_news(path, SilentProgress())
    assert {document.id: document.text for document in found.documents} == {
        **{"a": "一", "b": "二"},
        **{"a~2": "三", "c": "四"},
    }


@pytest.mark.parametrize(
    ("line", "change", "error"),
    [
        (3, lambda line: line.replace("0|", "2|", 1), "the label is '2', not 0 or 1"),
        (4, lambda line: line + "|x", "has 14 columns, and the first row has 13"),
        (5, lambda _: "1|a|b|t|t|text", "has 6 columns, not label, id, id, title, title, text"),
        (2, lambda line: "|".join(["0", "", *line.split("|")[2:]]), "id: is em"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: int, change: object, error: str) -> None:
    lines = news_lines()
    assert callable(change)
    lines[line - 1] = change(lines[line - 1])
    path = tmp_path / "pairs.txt"
    with pytest.raises(CorpusError) as raised:
        read(path, lines)
    assert str(raised.value).startswith(f"{path}:{line}: {error}")


def test_an_article_without_a_text_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    columns = news_lines()[1].split("|")
    path.write_text("\n".join([*news_lines(), "|".join(["0", "x", "y", *columns[3:5], "", "t"])]))
    with pytest.raises(CorpusError, match="has 7 columns, and the first row has 13"):
        read_news(path, SilentProgress())
    empty = "|".join(["0", "x", "y", *columns[3:5], "", *columns[6:]])
    path.write_text("\n".join([*news_lines(), empty]), encoding="utf-8")
    found = read_news(path, SilentProgress())
    assert found.left_out["pairs without a text"] == 1
    assert sum(map(len, found.pairs.values())) == 18


def test_a_pair_with_two_labels_is_refused(tmp_path: Path) -> None:
    lines = news_lines()
    again = "0" + lines[1][1:]
    with pytest.raises(CorpusError, match=r"txt:20: '0' and '1' have another label"):
        read(tmp_path / "pairs.txt", [*lines, again])


def test_a_folder_needs_one_file(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"has 0 files \*doc_pair\*.txt, not one"):
        read_news(tmp_path, SilentProgress())
