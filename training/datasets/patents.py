"""Patents in pairs (CoLDE, section 4.1.1): claims and description, and labels of human judges.

Patents are JSON Lines with the fields of Google Patents Public Data, as BigQuery exports them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import TENTHS, DataSet, LabelledIds, make_document
from training.datasets.lines import (
    files_below,
    read_columns,
    read_label,
    read_objects,
    require_files,
    require_folder,
    text_field,
)
from training.datasets.pairs import divide, ends

PAIRS = "pairs.tsv"
_PATENTS = ("*.jsonl", "*.jsonl.gz", "*.json")
_SECTIONS = (("Claims", "claims_localized"), ("Description", "description_localized"))


def check_patents(source: Path) -> None:
    """Check that patents and pairs are there.

    Raises:
        CorpusError: what is missing.
    """
    require_folder(source)
    require_files(files_below(source, *_PATENTS), source, "file of patents (*.jsonl)")
    if not (source / PAIRS).is_file():
        raise CorpusError(f"{source / PAIRS}: there is no such file (label, patent, patent)")


def read_patents(source: Path, seed: int, progress: Progress) -> DataSet:
    """Read the English claims and descriptions of patents, and labelled pairs of them.

    Raises:
        CorpusError: a line is no patent or no pair, or a patent of a pair is missing.
    """
    check_patents(source)
    pairs: dict[tuple[str, str], LabelledIds] = {}
    places: dict[str, str] = {}
    for where, (label, a, b) in read_columns(source / PAIRS, ("label", "patent", "patent")):
        pair = LabelledIds(a, b, read_label(label, where))
        if pairs.setdefault(ends(pair), pair).label != pair.label:
            raise CorpusError(f"{where}: {a!r} and {b!r} have another label in an earlier line")
        places |= {name: places.get(name, where) for name in (a, b)}
    progress.started("reading patents", None, unit="patents")
    patents = {
        patent.id: patent for patent in _read_patents(source, progress) if patent.id in places
    }
    for name, where in places.items():
        if name not in patents:
            raise CorpusError(f"{where}: there is no patent {name!r} with claims or a description")
    return DataSet(list(patents.values()), divide(pairs.values(), TENTHS, seed))


def _read_patents(source: Path, progress: Progress) -> Iterator[Document]:
    for where, record in read_objects(files_below(source, *_PATENTS)):
        progress.advanced(1)
        name = text_field(record, "publication_number", where)
        sections = [
            f"# {heading}\n\n{text}"
            for heading, field in _SECTIONS
            if (text := _english(record, field, where))
        ]
        if sections:
            title = _english(record, "title_localized", where)
            yield make_document(where, name, "\n\n".join(sections), title)


def _english(record: Mapping[str, Any], field: str, where: str) -> str:
    """Return the English text of a field, which has one for each language."""
    texts = record.get(field) or []
    if not isinstance(texts, list) or not all(isinstance(one, dict) for one in texts):
        raise CorpusError(f"{where}: {field}: is not a list of texts with their languages")
    found = (text_field(one, "text", where) for one in texts if one.get("language") == "en")
    return next(found, "").strip()
