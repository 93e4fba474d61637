"""A corpus in a folder, in the format that `longmatch train` finds: texts, links, splits."""

import gzip
import io
import json
import shutil
from collections import Counter
from collections.abc import Mapping
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
    unfinished = output.with_name(output.name + ".partial")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    unfinished.mkdir()
    _write_texts(unfinished / "corpus.jsonl.gz", selection, texts)
    lines = (f"{name}\t{part}\n" for name, part in selection.parts.items())
    (unfinished / "splits.tsv").write_text("".join(lines), encoding="utf-8")
    both = sorted({*selection.links, *((b, a) for a, b in selection.links)})
    rows = (f"{query}\t0\t{document}\t1\n" for query, document in both)
    (unfinished / "qrels.tsv").write_text("".join(rows), encoding="utf-8")
    (unfinished / "counts.json").write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(output)
    return counts


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


def _write_texts(path: Path, selection: Selection, texts: Mapping[str, str]) -> None:
    # Without a time and a name in its head, equal content is an equal file.
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8") as stream,
    ):
        for one in selection.documents:
            record = {
                "id": one.id,
                "title": one.title,
                "text": texts[one.id],
                "metadata": dict(one.metadata),
            }
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
