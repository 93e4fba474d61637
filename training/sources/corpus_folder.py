"""A corpus in a folder, in the format that `longmatch train` finds: texts, links, splits."""

import gzip
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evaluation.judgements import PARTS
from training.sources.masking import MaskUnit, cut_words, mask_names
from training.sources.selection import CorpusOptions, Link, Selection, without


def write_corpus(
    output: Path, selection: Selection, options: CorpusOptions, unit: MaskUnit
) -> dict[str, Any]:
    """Write corpus.jsonl.gz, qrels.tsv, splits.tsv and counts.json into a new folder.

    The folder appears complete or not at all. The same selection and options give the same bytes.

    Args:
        output: must not exist.
        selection: what to write.
        options: for masks and the length of texts; a text that masks make too short is left out.
        unit: of masks.

    Returns:
        What counts.json holds.

    Raises:
        OSError: a file could not be written.
    """
    selection, texts = _masked_texts(selection, options, unit)
    counts = count(selection, texts)
    both = sorted({*selection.links, *((b, a) for a, b in selection.links)})
    with new_folder(output) as folder:
        write_records(folder / "corpus.jsonl.gz", _records(selection, texts))
        write_splits(folder, selection.parts)
        write_judgements(folder, ((query, document, 1) for query, document in both))
        write_counts(folder, counts)
    return counts


@contextmanager
def new_folder(output: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes `output` at the end, or is removed on an error.

    Raises:
        OSError: a file or folder could not be written.
    """
    unfinished = output.with_name(output.name + ".partial")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    try:
        yield unfinished
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    unfinished.replace(output)


def write_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON Lines with gzip; equal records make an equal file."""
    with (
        path.open("wb") as file,
        # Without a time and a name in its head, equal content is an equal file.
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        for record in records:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def write_splits(folder: Path, parts: Mapping[str, str]) -> None:
    """Write the part of each id as splits.tsv."""
    lines = (f"{name}\t{part}\n" for name, part in parts.items())
    (folder / "splits.tsv").write_text("".join(lines), encoding="utf-8")


def write_judgements(folder: Path, judgements: Iterable[tuple[str, str, int]]) -> None:
    """Write (query, document, relevance) as qrels.tsv."""
    with (folder / "qrels.tsv").open("w", encoding="utf-8") as stream:
        for query, document, relevance in judgements:
            stream.write(f"{query}\t0\t{document}\t{relevance}\n")


LEARNED = "learned.txt"


def write_learned(folder: Path, texts: Iterable[str]) -> None:
    """Write which texts of queries of feedback are learned from, as their SHA-256 in hex."""
    (folder / LEARNED).write_text("".join(f"{one}\n" for one in sorted(texts)), encoding="utf-8")


def read_learned(folder: Path) -> set[str] | None:
    """Read what `write_learned` wrote; None if it wrote nothing.

    Raises:
        OSError: it cannot be read.
    """
    path = folder / LEARNED
    return set(path.read_text(encoding="utf-8").split()) if path.is_file() else None


def write_counts(folder: Path, counts: Mapping[str, Any]) -> None:
    """Write what a folder holds as counts.json."""
    (folder / "counts.json").write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def count(selection: Selection, texts: Mapping[str, str]) -> dict[str, Any]:
    """Count documents, words and links of a corpus, by part and by licence, and what is missing."""
    parts, links = Counter(selection.parts.values()), _links_of_parts(selection.links, selection)
    licences = Counter(
        " and ".join(one.metadata["licence"])
        for one in selection.documents
        if "licence" in one.metadata
    )
    return {
        "documents": len(selection.documents),
        "words": sum(len(text.split()) for text in texts.values()),
        "links": len(selection.links),
        "documents of parts": {part: parts[part] for part in PARTS},
        "links of parts": {part: links[part] for part in PARTS},
        "licences": dict(licences.most_common()),
        "left out": dict(selection.left_out),
    }


def _links_of_parts(links: frozenset[Link], selection: Selection) -> Counter[str]:
    return Counter(selection.parts[a] for a, _ in links)


def _masked_texts(
    selection: Selection, options: CorpusOptions, unit: MaskUnit
) -> tuple[Selection, dict[str, str]]:
    linked: dict[str, list[str]] = {}
    for a, b in selection.links:
        linked.setdefault(a, []).append(b)
        linked.setdefault(b, []).append(a)
    texts = {}
    for one in selection.documents:
        text = mask_names(one, linked[one.id], options.mask_titles, options.seed, unit)
        texts[one.id] = cut_words(text, options.max_words)
    short = [name for name, text in texts.items() if len(text.split()) < options.min_words]
    rest = without(selection, short, "documents too short without the masked names")
    return rest, {name: texts[name] for name in rest.parts}


def _records(selection: Selection, texts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for one in selection.documents:
        fields = {"id": one.id, "title": one.title, "text": texts[one.id]}
        yield fields | {"metadata": dict(one.metadata)}
