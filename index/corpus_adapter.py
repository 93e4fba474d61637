"""`adapter.npz` in a data directory: what was fitted to its corpus before anything was encoded."""

from dataclasses import dataclass
from pathlib import Path

from encoder.adapter import Adapter, format_adapter, parse_adapter, require_fits
from encoder.checkpoint import Checkpoint
from encoder.durable_files import write_in_place
from encoder.tokenizer import BlockTokenizer
from index.adapt import count_corpus, fit_adapter
from index.data_directory import ADAPTER_FILE, STORE_FILE, locked, settle
from index.errors import StoreError
from index.observer import Observer


@dataclass(frozen=True, slots=True)
class CorpusAdapter:
    """The adapter of a data directory, and whether it was there before."""

    adapter: Adapter
    kept: bool


def adapt_data_directory(
    corpus: Path,
    data: Path,
    checkpoint: Checkpoint,
    tokenizer: BlockTokenizer,
    observer: Observer,
) -> CorpusAdapter:
    """Fit an adapter to a corpus and store it, unless the data directory has one.

    At the return it is on the disk, so that whoever goes on uses the same one.

    Raises:
        AdapterError: the one that is there is damaged or of another checkpoint.
        CorpusError: the corpus cannot be read, or nothing can be fitted to it.
        StoreError: the directory holds documents that were not adapted, is in use, or cannot be
            written.
    """
    with locked(data):
        found = read_corpus_adapter(data, checkpoint)
        if found is not None:
            return CorpusAdapter(found, kept=True)
        if (data / STORE_FILE).exists():
            raise StoreError(
                f"{data}: was made without --adapt, and vectors of both kinds cannot be compared: "
                "index the corpus with --adapt into a new data directory"
            )
        counted = count_corpus(corpus, checkpoint, tokenizer, observer)
        adapter = fit_adapter(counted, checkpoint, observer)
        write_corpus_adapter(data, adapter)
        return CorpusAdapter(adapter, kept=False)


def write_corpus_adapter(directory: Path, adapter: Adapter) -> None:
    """Write the file into a data directory, whole or not at all.

    Raises:
        OSError: the disk did not take it.
    """
    write_in_place(directory / ADAPTER_FILE, format_adapter(adapter))


def read_corpus_adapter(directory: Path, checkpoint: Checkpoint) -> Adapter | None:
    """Read the adapter of a data directory; None where it has none.

    Raises:
        AdapterError: it is damaged, or was fitted for another checkpoint.
        StoreError: it cannot be read.
    """
    settle(directory)
    path = directory / ADAPTER_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    adapter = parse_adapter(data, str(path))
    require_fits(adapter, checkpoint, str(path))
    return adapter
