"""The job of `longmatch make-corpus`: documents of a source become a corpus with links."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from index.corpus.reader import read_corpus
from index.document import Document, SkippedInput
from index.errors import CorpusError
from index.progress import Progress
from training.sources.corpus_folder import write_corpus
from training.sources.html_pages import read_html_pages
from training.sources.linked_document import LinkedDocument
from training.sources.man_pages import groff_is_installed, read_man_pages
from training.sources.packages import find_packages, open_packages
from training.sources.selection import CorpusOptions, select
from training.sources.titles import link_by_titles

SourceKind = Literal["titles", "manpages", "html"]
KINDS: tuple[SourceKind, ...] = get_args(SourceKind)


def check_sources(kind: SourceKind, sources: Sequence[Path]) -> None:
    """Check that sources are of a kind, without reading documents.

    Raises:
        CorpusError: a source is missing or of another kind, or a program is missing that reads it.
    """
    if kind == "titles":
        for source in sources:
            read_corpus(source)
        return
    find_packages(sources)
    if kind == "manpages" and not groff_is_installed():
        raise CorpusError("manual pages are read by groff, which is not installed (groff-base)")


def make_corpus(
    kind: SourceKind,
    sources: Sequence[Path],
    output: Path,
    options: CorpusOptions,
    progress: Progress,
) -> dict[str, Any]:
    """Write a corpus with links, to be read by `longmatch train`.

    Args:
        kind: "titles" (corpora of any format, whose documents name one another's titles),
            "manpages" or "html" (.deb files, folders of them, or folders of pages).
        sources: at least one.
        output: the folder to write; must not exist.
        options: what to keep.
        progress: is notified.

    Returns:
        Counts of documents, words, links and licences, and of what was left out.

    Raises:
        CorpusError: a source cannot be read, or has no links.
        OSError: the folder could not be written.
    """
    check_sources(kind, sources)
    selection = select(_read(kind, sources, progress), options)
    if not selection.links:
        raise CorpusError("no document links to another one of the same split")
    return write_corpus(output, selection, options, "sentence" if kind == "titles" else "name")


def _read(kind: SourceKind, sources: Sequence[Path], progress: Progress) -> list[LinkedDocument]:
    if kind == "titles":
        return link_by_titles(_read_documents(sources, progress), progress)
    packages = open_packages(find_packages(sources), progress)
    if kind == "manpages":
        return read_man_pages(packages, progress)
    return read_html_pages(packages, progress)


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
