"""Checks of corpora and data directories, which commands make before any work.

Apart from `service.cli.checks`, which a server needs: these import what reads documents.
"""

from pathlib import Path

from index.build import NO_DOCUMENT
from index.corpus.reader import Corpus, read_corpus, require_suffix
from index.directory.data_directory import swap_is_pending
from index.document import Document
from index.errors import CorpusError
from service.cli.checks import OptionError, check_file
from service.cli.opening import has_documents
from service.settings import Settings


def check_corpus(corpus: Corpus, option: str = "CORPUS") -> None:
    """Check that there is a corpus, without reading its documents."""
    try:
        read_corpus(corpus)
    except CorpusError as error:
        raise OptionError(option, error) from error


def check_some_document(corpus: Corpus, option: str = "CORPUS") -> None:
    """Check that a corpus has something in it, reading up to its first document."""
    unread = []
    for item in read_corpus(corpus):
        if isinstance(item, Document) or item.lost:
            return
        unread.append(f"; {item.where}: {item.reason}")
    raise OptionError(option, f"{corpus}: {NO_DOCUMENT}{''.join(unread)}")


def check_document(path: Path, option: str = "FILE") -> None:
    """Check that a path is a file of a kind that can be read as one document."""
    check_file(path, option)
    try:
        require_suffix(path)
    except CorpusError as error:
        raise OptionError(option, error) from error


def check_data_directory(path: Path, option: str = "--data", instead: str | None = None) -> None:
    """Check that a path is a data directory, or one whose content was being replaced.

    With `instead`, which says what does the work there, one whose documents are in a PostgreSQL is
    refused.
    """
    if instead is not None and Settings().database is not None:
        raise OptionError(option, f"its documents are in LONGMATCH_DATABASE: {instead}")
    if not has_documents(path) and not swap_is_pending(path):
        raise OptionError(option, f"{path}: there is no data directory here")
