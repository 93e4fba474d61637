"""A corpus with judgements in a data directory, for benchmarks of the search."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from benchmarks.quality.retrieval import CorpusPart
from encoder.blocks import Receipt
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import EncodedCorpus, embed_encoded_corpus, keep_blocks
from evaluation.judgements import read_qrels, read_splits
from index.corpus.reader import read_corpus
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.progress import SilentProgress
from index.search.records import EncodedQuery
from index.sqlite.block_vectors import BlockVectors
from index.store.records import EncodedDocument

PUT_TOGETHER = 200
WORDS_ONLY = "0" * 64  # the fingerprint of a store whose vectors are all the same


@contextmanager
def stored_corpus(
    part: CorpusPart, encoder: OnnxEncoder, blocks: Path, folder: Path
) -> Iterator[DataDirectory]:
    """Store a corpus in a new data directory in the folder; `blocks` keeps its block vectors."""
    encoded = keep_blocks(part.corpus, blocks, encoder, SilentProgress())
    sizes = {"fingerprint": encoder.fingerprint, "dimension": encoder.dimension}
    with closing(open_data_directory(folder / "data", **sizes, find_families=False)) as data:
        _store(data, part, encoded, encoder)
        yield data


@contextmanager
def stored_words(part: CorpusPart, folder: Path) -> Iterator[DataDirectory]:
    """Store a corpus for lexical mode alone: nothing is encoded."""
    path = folder / "data"
    with closing(
        open_data_directory(path, fingerprint=WORDS_ONLY, dimension=1, find_families=False)
    ) as data:
        vector = np.ones(1, dtype=np.float32)
        texts = (one for one in read_corpus(part.corpus) if isinstance(one, Document))
        _put(data, [EncodedDocument(one, vector, Receipt(1, 1, 1, 0, 1)) for one in texts])
        yield data


def _store(
    data: DataDirectory, part: CorpusPart, encoded: EncodedCorpus, encoder: OnnxEncoder
) -> None:
    embedded = embed_encoded_corpus(encoded, encoder)
    space = embedded.aligned.space if embedded.aligned is not None else None
    if space is not None:
        data.store.alignment.start_with(space)
    texts = {one.id: one for one in read_corpus(part.corpus) if isinstance(one, Document)}
    entries = []
    for name, row, vector in zip(
        embedded.ids, encoded.rows.tolist(), embedded.vectors, strict=True
    ):
        kept = encoded.archive.vectors(row)[: encoder.checkpoint.max_blocks].astype(np.float32)
        own = BlockVectors(np.zeros((len(kept), 2), dtype=np.int64), kept)
        entries.append(EncodedDocument(texts[name], vector, Receipt(1, 1, len(kept), 0, 1), own))
    _put(data, entries)


def _put(data: DataDirectory, entries: list[EncodedDocument]) -> None:
    for start in range(0, len(entries), PUT_TOGETHER):
        data.index.apply(data.store.put(entries[start : start + PUT_TOGETHER]))


def stored_queries(data: DataDirectory, part: CorpusPart) -> dict[str, EncodedQuery]:
    """Return the queries of a part of a corpus, which are stored, by their ids."""
    splits, qrels = read_splits(part.folder / "splits.tsv"), read_qrels(part.folder / "qrels.tsv")
    return stored_documents(data, sorted(name for name in qrels if splits.get(name) == part.part))


def stored_documents(data: DataDirectory, names: Sequence[str]) -> dict[str, EncodedQuery]:
    """Return stored documents as queries, by their ids."""
    found = data.store.find(names)
    stored = data.store.vectors([one.vector_id for one in found.values()])
    vectors = dict(zip(*stored, strict=True))
    return {
        name: EncodedQuery(
            one.document.text, vectors[one.vector_id], one.document.title, None, one.vector_id
        )
        for name, one in found.items()
    }
