"""Documents with a class each, in the manner of arXiv's categories: those of one class match."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from evaluation.judgements import PARTS
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from training.datasets.dataset import TENTHS, DataSet, make_document
from training.datasets.lines import files_below, read_objects, require_files, text_field, text_lines
from training.sources.selection import unit_hash

LINKS = 10  # of a training document, to others of its class
QUERIES = 500  # of the validation part and of the test part, at most
_OBJECTS = (".jsonl", ".jsonl.gz")
_FILES = ("*.jsonl", "*.jsonl.gz", "*.tsv", "*.txt")


def find_classes(source: Path) -> list[Path]:
    """Return the files of documents: the source itself, or those in the folder.

    Raises:
        CorpusError: there is none.
    """
    if source.is_file():
        return [source]
    if not source.is_dir():
        raise CorpusError(f"{source}: there is no such file or folder")
    found = files_below(source, *_FILES)
    return list(require_files(found, source, f"file of documents ({', '.join(_FILES)})"))


def read_classes(source: Path, seed: int, progress: Progress) -> DataSet:
    """Read documents, one a line: `class TAB text`, or JSON with `label`, `text`, and maybe `id`.

    A training document is linked to at most `LINKS` others of its class; all would be a square of
    them. Of each other part at most `QUERIES` documents are queries, and all of their class match.

    Raises:
        CorpusError: a line is no document with a class, or there are fewer than two classes.
    """
    paths = find_classes(source)
    progress.started("reading documents", None)
    documents: dict[str, Document] = {}
    class_of: dict[str, str] = {}
    for where, document, label in _read(paths):
        progress.advanced(1)
        if documents.setdefault(document.id, document) is not document:
            raise CorpusError(f"{where}: the id {document.id!r} already occurs")
        class_of[document.id] = label
    if len(set(class_of.values())) < 2:
        raise CorpusError(f"{source}: the documents have fewer than two classes")
    parts = _choose_parts(class_of, seed)
    return DataSet(list(documents.values()), judgements=list(_judge(class_of, parts)), parts=parts)


def _read(paths: Sequence[Path]) -> Iterator[tuple[str, Document, str]]:
    for path in paths:
        if path.name.endswith(_OBJECTS):
            for number, (where, record) in enumerate(read_objects([path]), start=1):
                label = text_field(record, "label", where)
                name = text_field(record, "id", where, f"{path.stem.split('.')[0]}-{number}")
                title = text_field(record, "title", where, "")
                text = text_field(record, "text", where)
                yield where, _document(where, name, text, title, label), label
            continue
        for line in text_lines(path):
            where = f"{path}:{line.number}"
            label, tab, text = line.text.partition("\t")
            if not tab or not label.strip():
                raise CorpusError(f"{where}: is not a class, a tab and a text")
            name, label = f"{path.stem}-{line.number}", label.strip()
            yield where, _document(where, name, text, "", label), label


def _document(where: str, name: str, text: str, title: str, label: str) -> Document:
    return make_document(where, name, text, title, {"class": label})


def _choose_parts(class_of: Mapping[str, str], seed: int) -> dict[str, str]:
    """Divide each class by a seeded hash of the ids."""
    parts = {}
    for names in _by_class(class_of).values():
        order = _shuffled(names, seed)
        ends = [round(sum(TENTHS[:count]) * len(order)) for count in (1, 2, 3)]
        for part, begin, end in zip(PARTS, [0, *ends], ends, strict=False):
            parts.update(dict.fromkeys(order[begin:end], part))
    return {name: parts[name] for name in class_of}


def _judge(class_of: Mapping[str, str], parts: Mapping[str, str]) -> Iterator[tuple[str, str, int]]:
    groups = _by_class(class_of)
    for names in groups.values():
        trained = [name for name in names if parts[name] == "train"]
        for place, name in enumerate(trained):
            steps = range(1, min(LINKS // 2, (len(trained) - 1) // 2) + 1)
            around = {trained[(place + step) % len(trained)] for step in steps}
            around |= {trained[place - step] for step in steps}
            if len(trained) == 2:
                around = {trained[1 - place]}
            yield from ((name, other, 1) for other in sorted(around - {name}))
    for part in PARTS[1:]:
        queries = _shuffled([name for name in parts if parts[name] == part], 0)[:QUERIES]
        for query in queries:
            same = groups[class_of[query]]
            yield from ((query, other, 1) for other in same if other != query)


def _by_class(class_of: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for name, label in class_of.items():
        groups[label].append(name)
    return groups


def _shuffled(names: Sequence[str], seed: int) -> list[str]:
    return sorted(names, key=lambda name: unit_hash(f"class {seed} {name}"))
