"""AAN: papers of the ACL Anthology Network and their citations (SMITH, section 5.1.2)."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from evaluation.judgements import Pair, text_lines
from index.corpus.json_lines import read_lines
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet
from training.datasets.dataset import (
    TENTHS,
    add_negatives,
    divide,
    make_document,
    without_missing,
)
from training.datasets.lines import (
    files_below,
    one_file_a_part,
    read_text,
    require_files,
)
from training.datasets.pair_tables import Layout, read_pair_tables

TEXTS, NETWORK, TITLES = "papers_text", "acl.txt", "paper_ids.txt"
_ARROW = "==>"
_IDS, _TEXTS = Layout(("id",), "\t"), Layout(("id", "text"), "\t")
_TITLE_COLUMNS = ("paper", "title", "year")
_REFERENCES = re.compile(r"^[\s\d.]*(?:references|bibliography)\s*$", re.I | re.M)
_ABSTRACT = re.compile(r"^\s*abstract\b", re.I | re.M)
_INTRODUCTION = re.compile(r"^[\s\d.]*introduction\s*$", re.I | re.M)


def read_citations(source: Path, progress: Progress) -> DataSet:
    """Read papers, without abstract and references, and pairs of a paper and one that it cites.

    Lists `*.tsv` of label, id and id, one for each part, give the pairs. Without them, each
    citation is a positive pair, and a random paper that is not cited makes a negative one. Lists of
    label, id, id, text and text are the form of the Long Range Arena: their texts are read as they
    are, and nothing beside them.
    """
    lists = sorted(source.glob("*.tsv"))
    layout = _TEXTS if _hold_texts(lists) else _IDS
    left_out: Counter[str] = Counter()
    papers: dict[str, Document] = {}
    if lists:
        parts = one_file_a_part(lists, source)
        pairs = read_pair_tables(parts, layout, papers, left_out, progress)
    if layout is _IDS:
        texts = [path for path in files_below(source, "*.txt") if TEXTS in path.parent.parts]
        require_files(texts, source, f"folder {TEXTS} with .txt files")
        papers = _read_papers(texts, _read_titles(source, progress), left_out, progress)
    if not lists:
        networks = files_below(source, NETWORK)  # of all releases, the newest last
        require_files(networks, source, f"{NETWORK}, nor lists of pairs *.tsv")
        pairs = _sample(_read_network(networks[-1]), papers, left_out)
    return DataSet(papers.values(), without_missing(pairs, papers, left_out), left_out=left_out)


def body(text: str) -> str:
    """Return the text of a paper without its abstract and its references.

    Sections are found by lines that are their headings: what is before the introduction is left
    out from the abstract on, and what is behind the last heading of references in the second half.
    """
    last = [match.start() for match in _REFERENCES.finditer(text) if match.start() > len(text) // 2]
    text = text[: last[-1]] if last else text
    abstract = _ABSTRACT.search(text)
    introduction = _INTRODUCTION.search(text, abstract.end()) if abstract else None
    if abstract and introduction:
        text = text[: abstract.start()] + text[introduction.start() :]
    return text.strip()


def _hold_texts(lists: Sequence[Path]) -> bool:
    """Whether the first list has more columns than label, id and id."""
    if not lists:
        return False
    first = next(text_lines(lists[0]), None)
    return first is not None and first.text.count("\t") > 2


def _read_network(path: Path) -> list[tuple[str, str]]:
    """Return (citing, cited) of each line `A ==> B`, once."""
    found: dict[tuple[str, str], None] = {}
    for line in text_lines(path):
        columns = [column.strip() for column in line.text.split(_ARROW)]
        if len(columns) != 2 or not all(columns):
            raise CorpusError(f"{path}:{line.number}: is not 'paper {_ARROW} cited paper'")
        if columns[0] != columns[1]:
            found[columns[0], columns[1]] = None
    if not found:
        raise CorpusError(f"{path}: holds no citation")
    return list(found)


def _read_titles(source: Path, progress: Progress) -> dict[str, str]:
    """Read the titles of the newest release; a line that is not UTF-8 gives none."""
    titles = {}
    for path in files_below(source, TITLES)[-1:]:
        for line in read_lines(path):
            if line.fault:
                progress.skipped(SkippedInput(f"{path.name}:{line.number}", line.fault))
                continue
            columns = line.text.split("\t")
            if len(columns) != len(_TITLE_COLUMNS):
                where = f"{path}:{line.number}"
                expected = ", ".join(_TITLE_COLUMNS)
                raise CorpusError(f"{where}: has {len(columns)} columns, not {expected}")
            titles[columns[0].strip()] = columns[1].strip()
    return titles


def _read_papers(
    files: Sequence[Path], titles: dict[str, str], left_out: Counter[str], progress: Progress
) -> dict[str, Document]:
    progress.started("reading papers", len(files))
    papers: dict[str, Document] = {}
    for path in files:
        progress.advanced(1)
        try:
            text = body(read_text(path))
        except CorpusError as error:  # as in the paper
            progress.skipped(SkippedInput(path.name, str(error)))
            left_out["papers that are not UTF-8"] += 1
            continue
        if text:
            papers[path.stem] = make_document(str(path), path.stem, text, titles.get(path.stem, ""))
        else:
            left_out["papers without a body"] += 1
    return papers


def _sample(
    cited: Sequence[tuple[str, str]], papers: dict[str, Document], left_out: Counter[str]
) -> dict[str, list[Pair]]:
    names = sorted(papers)
    # Of papers that cite each other one pair is made.
    once = {(min(pair), max(pair)): pair for pair in reversed(cited)}
    positives = [pair for pair in reversed(once.values()) if papers.keys() >= set(pair)]
    left_out["citations without a text"] += len(once) - len(positives)
    pairs, missing = add_negatives(positives, lambda _: names)
    left_out["citations without a negative pair"] += missing
    return divide(pairs, TENTHS)
