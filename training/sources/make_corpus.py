"""The job of `longmatch lab make-corpus`: documents of a source become a corpus with links."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from index.corpus.reader import read_corpus
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.html_pages import read_html_pages
from training.sources.linked_corpus import CorpusOptions, select, write_corpus
from training.sources.titles import link_by_titles

SourceKind = Literal["titles", "html"]
KINDS: tuple[SourceKind, ...] = get_args(SourceKind)


def check_sources(kind: SourceKind, sources: Sequence[Path]) -> None:
    """Check that sources are of a kind, without reading documents."""
    for source in sources:
        if kind == "titles":
            read_corpus(source)
        elif not source.is_dir():
            raise CorpusError(f"{source}: there is no such folder")


def make_corpus(
    kind: SourceKind,
    sources: Sequence[Path],
    output: Path,
    options: CorpusOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Write a corpus with links, to be read by `longmatch lab train`.

    Args:
        kind: "titles" (corpora of any format, whose documents name one another's titles) or "html"
            (folders of pages).
        output: the folder to write; must not exist.

    Returns:
        Counts of documents, words and links, and of what was left out.
    """
    check_sources(kind, sources)
    if kind == "titles":
        documents = link_by_titles(_read_documents(sources, progress), progress)
    else:
        documents = read_html_pages(sources, progress)
    selection = select(documents, options)
    if not selection.links:
        raise CorpusError("no document links to another one of the same split")
    return write_corpus(output, selection, options, "sentence" if kind == "titles" else "name")


def _read_documents(sources: Sequence[Path], progress: Progress) -> list[Document]:
    """Read corpora; a document whose id an earlier one has is skipped and reported."""
    progress.started("reading documents", None)
    documents: dict[str, Document] = {}
    for source in sources:
        for item in read_corpus(source):
            if isinstance(item, SkippedInput):
                progress.skipped(item)
            elif item.id in documents:
                reason = f"the id {item.id!r} already occurs"
                progress.skipped(SkippedInput(source.name, reason))
            else:
                documents[item.id] = item
            progress.advanced(1)
    return list(documents.values())
