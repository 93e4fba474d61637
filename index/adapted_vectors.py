"""Vectors without an index, adapted to their corpus as `longmatch index --adapt` adapts them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder.adapter import adapter_vocabulary
from encoder.checkpoint import Checkpoint
from encoder.terms import count_words
from encoder.tokenizer import BlockTokenizer
from index.adapt import CountedCorpus, find_titles, fit_adapter, in_sample
from index.corpus import read_documents
from index.document import Document
from index.embed import EmbeddedCorpus
from index.observer import Observer
from index.vector_index import Float32


def adapt_vectors(
    vectors: Float32,
    documents: Sequence[Document],
    number: int,
    checkpoint: Checkpoint,
    observer: Observer,
) -> Float32:
    """Fit an adapter to a corpus and adapt its vectors, and those of queries, which it never saw.

    Args:
        vectors: Float32[N + others, dimension].
        documents: theirs, with a token each.
        number: N, those of the corpus, which come first.
        checkpoint: of the vectors.
        observer: hears of the progress.

    Returns:
        Float32[N + others, dimension + width], unit norm.

    Raises:
        CorpusError: nothing can be fitted to the corpus.
    """
    tokenizer, vocabulary = BlockTokenizer(checkpoint), adapter_vocabulary(checkpoint)
    titles = find_titles((document.title for document in documents[:number]), tokenizer)
    observer.started("counting words", len(documents))
    counted = []
    for document in documents:
        counted.append(count_words(vocabulary, tokenizer(document.text).blocks, titles))
        observer.advanced(documents=1, tokens=0)
    read = [
        terms
        for terms, document in zip(counted[:number], documents, strict=False)
        if in_sample(document, number)
    ]
    adapter = fit_adapter(CountedCorpus(read, titles), checkpoint, observer)
    adapted = [adapter.adapt(*one) for one in zip(vectors, counted, strict=True)]
    return np.stack(adapted)


def adapt_embedded_corpus(
    corpus: Path, embedded: EmbeddedCorpus, checkpoint: Checkpoint, observer: Observer
) -> EmbeddedCorpus:
    """Adapt the vectors of a corpus, whose texts are read once more.

    Raises:
        CorpusError: the corpus cannot be read, or nothing can be fitted to it.
    """
    documents = read_documents(corpus, embedded.ids)
    vectors = adapt_vectors(embedded.vectors, documents, len(documents), checkpoint, observer)
    return replace(embedded, vectors=vectors)
