"""What `evaluate` measures: the systems of a run, and the questions they are asked."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from encoder.adapter import adapter_vocabulary
from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import usable_cores
from encoder.reranker.onnx_reranker import OnnxReranker
from encoder.terms.term_table import count_words
from encoder.tokenizer import BlockTokenizer
from evaluation.baselines import LEXICAL, block_baselines, lexical_baselines
from evaluation.block_baselines import CorpusBlocks
from evaluation.judgements import Pair, Qrels, find_pairs
from evaluation.report import PairQuestion, Retrieval
from evaluation.reranking import PairJudge, reranked_system
from evaluation.systems import HYBRID, System, hybrid_system, lexical_system, vector_system
from index.adapt import CountedCorpus, find_titles, fit_adapter, in_sample
from index.corpus.reader import read_documents
from index.document import Document
from index.embed import EmbeddedCorpus
from index.progress import Progress
from index.search.fusion import read_fusion
from index.search.search import Mode


def adapt_vectors(
    vectors: Float32,
    documents: Sequence[Document],
    number: int,
    checkpoint: Checkpoint,
    progress: Progress,
) -> Float32:
    """Fit an adapter to a corpus and adapt its vectors, and those of queries, which it never saw.

    Args:
        vectors: Float32[N + others, dimension].
        documents: theirs, with a token each.
        number: N, those of the corpus, which come first.
        checkpoint: of the vectors.
        progress: reports progress.

    Returns:
        Float32[N + others, dimension + width], unit norm.

    Raises:
        CorpusError: nothing can be fitted to the corpus.
    """
    tokenizer, vocabulary = BlockTokenizer(checkpoint), adapter_vocabulary(checkpoint)
    titles = find_titles((document.title for document in documents[:number]), tokenizer)
    progress.started("counting words", len(documents))
    counted = []
    for document in documents:
        counted.append(count_words(vocabulary, tokenizer(document.text).blocks, titles))
        progress.advanced(documents=1, tokens=0)
    read = [
        terms
        for terms, document in zip(counted[:number], documents, strict=False)
        if in_sample(document, number)
    ]
    adapter = fit_adapter(CountedCorpus(read, titles), checkpoint, progress)
    adapted = [adapter.adapt(*one) for one in zip(vectors, counted, strict=True)]
    return np.stack(adapted)


def adapt_embedded_corpus(
    corpus: Path, embedded: EmbeddedCorpus, checkpoint: Checkpoint, progress: Progress
) -> EmbeddedCorpus:
    """Adapt the vectors of a corpus, whose texts are read once more.

    Raises:
        CorpusError: the corpus cannot be read, or nothing can be fitted to it.
    """
    documents = read_documents(corpus, embedded.ids)
    vectors = adapt_vectors(embedded.vectors, documents, len(documents), checkpoint, progress)
    return replace(embedded, vectors=vectors)


SEMANTIC, ADAPTED, ADAPTED_HYBRID = "semantic", "adapted", "adapted hybrid"
RERANKED = "reranked"
OWN: Mapping[Mode, tuple[str, ...]] = {
    "semantic": (SEMANTIC,),
    "lexical": (SEMANTIC, "lexical"),
    "hybrid": (SEMANTIC, "lexical", "hybrid"),
}


@dataclass(frozen=True, slots=True)
class Known:
    """The vectors of the corpus and of the queries.

    Attributes:
        corpus: N documents.
        queries: the same object where the queries are documents of the corpus.
    """

    corpus: EmbeddedCorpus
    queries: EmbeddedCorpus

    @property
    def first_query(self) -> int:
        """The row of the first query, as systems count them."""
        return 0 if self.queries is self.corpus else len(self.corpus.ids)

    @property
    def all_vectors(self) -> Float32:
        """Vectors of all rows: of the documents, then of queries that are none."""
        if self.queries is self.corpus:
            return self.corpus.vectors
        return np.concatenate([self.corpus.vectors, self.queries.vectors])


def own_names(mode: Mode, *, adapt: bool) -> tuple[str, ...]:
    """Return the names of the systems that `longmatch_systems` makes."""
    adapted = {"hybrid": (ADAPTED, ADAPTED_HYBRID)}.get(mode, (ADAPTED,)) if adapt else ()
    return (*OWN[mode], *adapted)


def longmatch_systems(
    known: Known,
    checkpoint: Checkpoint,
    mode: Mode,
    files: Sequence[Path],
    adapting: Progress | None = None,
) -> Iterator[System]:
    """Make the systems of Longmatch itself, those that `own_names` names.

    Args:
        known: whose documents they score.
        checkpoint: whose vectors and whose fusion rule.
        mode: what is measured, with all that it is made of.
        files: the corpus, then the queries where they are none of its documents.
        adapting: hears of the fit of an adapter to the corpus; nothing is adapted without it.

    Raises:
        CorpusError: a text is missing, nothing can be fitted, or an extra is not installed.
        CheckpointError: the fusion rule is damaged.
    """
    settings = f"document vectors of {checkpoint.name}"
    number = len(known.corpus.ids)
    semantic = vector_system(SEMANTIC, settings, known.all_vectors, number)
    yield semantic
    documents = _all_documents(known, files) if mode != SEMANTIC or adapting else []
    texts = [document.text for document in documents]
    bases = {"hybrid": semantic}
    if adapting:
        vectors = adapt_vectors(known.all_vectors, documents, number, checkpoint, adapting)
        bases[ADAPTED_HYBRID] = vector_system(
            ADAPTED, f"{settings}, adapted to the corpus", vectors, number
        )
        yield bases[ADAPTED_HYBRID]
    if mode != SEMANTIC:
        lexical = lexical_system(texts, [document.title for document in documents], number)
        yield lexical
        if mode == "hybrid":
            rule = read_fusion(checkpoint)
            for name, base in bases.items():
                yield replace(hybrid_system(base, lexical, rule), name=name)


def reranked_own(
    system: System, known: Known, files: Sequence[Path], reranker: OnnxReranker, candidates: int
) -> System:
    """Make the system that reranks the first candidates of one of `longmatch_systems`.

    Raises:
        CorpusError: a text is missing.
    """
    judge = PairJudge(reranker, _all_texts(known, files, titled=True), threads=usable_cores())
    mode = {ADAPTED: SEMANTIC, ADAPTED_HYBRID: HYBRID}.get(system.name, system.name)
    mixture = reranker.rule.weights_of(mode)
    return reranked_system(system, judge, mixture, candidates, RERANKED)


def baseline_systems(
    names: Sequence[str], known: Known, files: Sequence[Path], blocks: CorpusBlocks | None
) -> Iterator[System]:
    """Make the named baselines.

    Args:
        names: of baselines.
        known: whose documents they score.
        files: the corpus, then the queries where they are none of its documents.
        blocks: for the baselines that read block vectors.

    Raises:
        CorpusError: a text is missing, the corpus is too small, an extra is not installed.
    """
    if any(name in LEXICAL for name in names):
        yield from lexical_baselines(names, _all_texts(known, files), len(known.corpus.ids))
    if blocks is not None:
        yield from block_baselines(names, blocks)


def _all_documents(known: Known, files: Sequence[Path]) -> list[Document]:
    documents = read_documents(files[0], known.corpus.ids)
    for queries in files[1:]:
        documents += read_documents(queries, known.queries.ids)
    return documents


def _all_texts(known: Known, files: Sequence[Path], *, titled: bool = False) -> list[str]:
    documents = _all_documents(known, files)
    return [document.titled_text if titled else document.text for document in documents]


def retrieval_question(known: Known, qrels: Qrels, wanted: set[str]) -> Retrieval:
    """Ask for the relevant documents of the wanted queries that have judgements."""
    names = known.queries.ids
    rows = [row for row, name in enumerate(names) if name in wanted and name in qrels]
    return Retrieval(
        ids=known.corpus.ids,
        query_ids=tuple(names[row] for row in rows),
        rows=np.array(rows, dtype=np.int64) + known.first_query,
        tokens=known.queries.tokens[rows],
        qrels=qrels,
    )


def pair_question(corpus: EmbeddedCorpus, pairs: list[Pair], valid: list[Pair]) -> PairQuestion:
    """Ask for the labels of pairs; `valid` is empty where there are no others to choose on.

    Raises:
        CorpusError: naming a document of a pair that the corpus does not have.
    """
    found = find_pairs(pairs, corpus.ids)
    tokens: Int64 = np.maximum(corpus.tokens[found.sources], corpus.tokens[found.targets])
    return PairQuestion(found, find_pairs(valid, corpus.ids) if valid else None, tokens)
