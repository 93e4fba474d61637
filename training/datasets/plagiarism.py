"""PAN: suspicious and source documents with annotated plagiarism (Match-Ignition, section 4.1).

Each annotated case is a positive pair: the passage in the suspicious document and the one in the
source document. The negative pair has another passage of that source document, of the same length,
which no annotation of any document touches.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lxml import etree

from evaluation.judgements import PARTS, Pair
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus_folder import DataSet, part_by_hash, unit_hash
from training.datasets.dataset import Shares, make_document
from training.datasets.lines import files_below, read_text, require_files

SHARES: Shares = (0.75, 0.125, 0.125)  # those of table 1 of Match-Ignition
_OFFSETS = ("this_offset", "this_length", "source_offset", "source_length")
_TRIES = 20  # random places for the passage of a negative pair
_TEXTS_HELD = 256  # of the documents whose passages were read last


@dataclass(frozen=True, slots=True)
class Case:
    """One annotated case of plagiarism; offsets and lengths are in characters.

    Attributes:
        suspicious: the name of the suspicious file.
        source: the name of the source file.
        this: (offset, length) in the suspicious document.
        that: (offset, length) in the source document.
        where: the file of annotations.
    """

    suspicious: str
    source: str
    this: tuple[int, int]
    that: tuple[int, int]
    where: str


def read_plagiarism(source: Path, progress: Progress) -> DataSet:
    """Read cases of plagiarism as pairs of passages; a suspicious document is in one part."""
    annotations, paths = files_below(source, "*.xml"), files_below(source, "*.txt")
    require_files(annotations, source, ".xml file of annotations")
    texts = _index_texts(require_files(paths, source, ".txt file of a document"))
    progress.started("reading annotations", len(annotations), unit="files")
    cases: list[Case] = []
    for path in annotations:
        progress.advanced(1)
        cases += _read_cases(path, texts)
    if not cases:
        raise CorpusError(f"{source}: no annotation is a case of plagiarism with a source")
    return _make_pairs(cases, texts, progress)


def _index_texts(paths: Sequence[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        if found.setdefault(path.name, path) != path:
            raise CorpusError(f"{path}: {found[path.name]} has the same name")
    return found


def _read_cases(path: Path, texts: Mapping[str, Path]) -> Iterator[Case]:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)  # with limits of size
    try:
        root = etree.fromstring(path.read_bytes(), parser)
    except etree.XMLSyntaxError as error:
        raise CorpusError(f"{path}:{error.lineno}: is not XML: {error}") from error
    suspicious = root.get("reference", "")
    for feature in root.iter("feature"):
        source = feature.get("source_reference")
        if feature.get("name") != "plagiarism" or source is None:
            continue  # of the document, or plagiarism whose source is unknown
        numbers = []
        for name in _OFFSETS:
            value = feature.get(name, "")
            if not value.isdecimal():
                said = f"is {value[:20]!r}, not a number" if value else "is missing"
                raise CorpusError(f"{path}: {name}: {said}")
            numbers.append(int(value))
        for name in (suspicious, source):
            if name not in texts:
                raise CorpusError(f"{path}: there is no document {name!r}")
        this, that = (numbers[0], numbers[1]), (numbers[2], numbers[3])
        yield Case(suspicious, source, this, that, str(path))


def _make_pairs(cases: Sequence[Case], texts: Mapping[str, Path], progress: Progress) -> DataSet:
    part_of = part_by_hash({case.suspicious for case in cases}, "suspicious", SHARES)
    taken: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for case in cases:
        taken[case.source].append((case.that[0], sum(case.that)))
    read = lru_cache(_TEXTS_HELD)(read_text)
    documents: dict[str, Document] = {}
    pairs: dict[str, list[Pair]] = {part: [] for part in PARTS}
    left_out: Counter[str] = Counter()
    progress.started("reading passages", len(cases), unit="cases")
    for case in cases:
        progress.advanced(1)
        some = pairs[part_of[case.suspicious]]
        paths = texts[case.suspicious], texts[case.source]
        this = _passage(read(paths[0]), case.this, paths[0], case)
        text = read(paths[1])
        that = _passage(text, case.that, paths[1], case)
        ours = _add(documents, case, this, case.suspicious, case.this)
        some.append(Pair(ours, _add(documents, case, that, case.source, case.that), True))
        start = _free_place(text, case, taken[case.source])
        if start is None:
            left_out["cases without a negative pair"] += 1
        else:
            place = (start, case.that[1])
            other = _add(documents, case, text[start : sum(place)], case.source, place)
            some.append(Pair(ours, other, False))
    # Cases of one passage with two sources give it two pairs, and repeated cases the same one.
    unique = {part: list(dict.fromkeys(some)) for part, some in pairs.items()}
    return DataSet(list(documents.values()), unique, left_out=left_out)


def _passage(text: str, place: tuple[int, int], path: Path, case: Case) -> str:
    start, length = place
    passage = text[start : start + length]
    if len(passage) < length or not passage.strip():
        raise CorpusError(
            f"{case.where}: the passage at {start} of {length} characters is not in {path}, "
            f"which has {len(text)}"
        )
    return passage


def _add(
    documents: dict[str, Document], case: Case, text: str, name: str, place: tuple[int, int]
) -> str:
    unique = f"{Path(name).stem}:{place[0]}+{place[1]}"
    if unique not in documents:
        documents[unique] = make_document(case.where, unique, text)
    return unique


def _free_place(text: str, case: Case, taken: Sequence[tuple[int, int]]) -> int | None:
    """Return where a passage of the same length begins that nothing was taken from, if found."""
    length = case.that[1]
    for step in range(_TRIES):
        key = f"passage {step} {case.suspicious} {case.this} {case.source} {case.that}"
        start = int(unit_hash(key) * (len(text) - length + 1))
        free = all(start + length <= begin or start >= end for begin, end in taken)
        if free and text[start : start + length].strip():
            return start
    return None
