"""Data of the CoLDE benchmark: test pairs and queries, and documents in shuffled order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.ablation.data import NEEDED, PAIR_MEASURES, AblationData
from encoder.arrays import Float32, Float64, Int64
from encoder.block_archive import archive_key
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import IDS, encode_corpus, read_encoded_corpus
from evaluation.judgements import PairRows, Qrels, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.metrics import AUC, choose_threshold, evaluate_per_query, measure_pairs
from evaluation.systems import rank, vector_system
from index.progress import Progress
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import CorpusFiles
from training.data.pair_files import TRAIN
from training.data.sampling import (
    DocumentSlice,
    cut_blocks,
    new_training_source,
    without_neighbours,
)

READ = 32  # blocks of a document, whatever training read
WHOLE = "as written"
SHUFFLED: Mapping[str, int] = {  # readings by the number of sections that change places
    "2 sections": 2,
    "4 sections": 4,
    "8 sections": 8,
    "every block": READ,
}
READINGS = (WHOLE, *SHUFFLED)
_ORDER_SEED = 3


@dataclass(frozen=True, slots=True)
class Truth:
    """Labels of the validation and test documents of one corpus.

    Attributes:
        ids: of its N documents.
        valid: pairs that thresholds are chosen on.
        test: pairs that are classified.
        queries: judgements of the queries of the test part.
    """

    ids: tuple[str, ...]
    valid: PairRows
    test: PairRows
    queries: Qrels


@dataclass(frozen=True, slots=True)
class Answers:
    """How document vectors answer the test questions of one corpus.

    Attributes:
        right: for each reading Float64[P], 1 where a test pair is classified correctly.
        measures: for each reading, of the test pairs.
        ndcg: Float64[Q], nDCG@10 of each query, documents as written.
    """

    right: Mapping[str, Float64]
    measures: Mapping[str, Mapping[str, float]]
    ndcg: Float64


def read_corpora(
    folders: Sequence[Path], encoder: OnnxEncoder, blocks: Path, progress: Progress
) -> AblationData:
    """Read the training data, and encode what is not encoded yet.

    No objective here samples lexical neighbours, so none are computed.

    Args:
        folders: of the corpora.
        encoder: whose sentence level is used.
        blocks: the folder that keeps block vectors, by name of the corpus.
        progress: is notified while encoding.

    Raises:
        CorpusError: a corpus cannot be read.
        ArchiveError: what is kept is damaged, or another encoder made it.
    """
    encoded = []
    for folder in folders:
        corpus, train, valid, _, splits = (folder / name for name in NEEDED)
        directory = blocks / folder.name / "blocks"
        key = archive_key(encoder.checkpoint, precision=encoder.precision)
        complete = (directory / IDS).exists()
        kept = (
            read_encoded_corpus(directory, key)
            if complete
            else encode_corpus(corpus, directory, encoder, progress)
        )
        encoded.append((CorpusFiles(corpus, None, (train, valid), splits), kept))
    corpora = read_training_data(encoded)
    sources = [
        new_training_source(number, one, without_neighbours(len(one.rows(TRAIN))), READ)
        for number, one in enumerate(corpora)
    ]
    names = tuple(folder.name for folder in folders)
    return AblationData(encoder.checkpoint, corpora, tuple(sources), names)


def read_truths(folders: Sequence[Path], data: AblationData) -> list[Truth]:
    """Read the test pairs and queries of corpora.

    Raises:
        CorpusError: a file cannot be read or does not fit its corpus.
    """
    truths = []
    for folder, corpus in zip(folders, data.corpora, strict=True):
        ids = corpus.encoded.ids
        splits = read_splits(folder / "splits.tsv")
        qrels = read_qrels(folder / "qrels.tsv")
        queries = {q: relevant for q, relevant in qrels.items() if splits.get(q) == "test"}
        pairs = find_pairs(read_pairs(folder / "pairs.test.jsonl.gz"), ids)
        truths.append(Truth(ids, corpus.valid_pairs, pairs, queries))
    return truths


def parts_of(
    corpus: TrainingCorpus, number: int, truth: Truth, reading: str
) -> list[DocumentSlice]:
    """Return the documents that a reading needs: all as written, those of test pairs shuffled.

    Args:
        corpus: whose documents they are.
        number: of its archive.
        truth: of the corpus.
        reading: of `READINGS`.
    """
    rows = range(len(truth.ids)) if reading == WHOLE else rows_of(truth)
    parts = []
    for row in rows:
        archived = int(corpus.encoded.rows[row])
        places = None
        if reading != WHOLE:
            start, stop = corpus.encoded.archive.span(archived)
            places = shuffled(min(stop - start, READ), SHUFFLED[reading], archived)
        parts.append(DocumentSlice(number, archived, places))
    return parts


def rows_of(truth: Truth) -> list[int]:
    """Return the rows of the documents of test pairs, ascending."""
    rows: list[int] = np.unique(np.concatenate([truth.test.sources, truth.test.targets])).tolist()
    return rows


def shuffled(blocks: int, sections: int, seed: int) -> Int64:
    """Return the places of blocks whose sections changed places (CoLDE, figure 8)."""
    parts = cut_blocks(blocks, sections)
    random = np.random.default_rng([_ORDER_SEED, seed])
    order = random.permutation(len(parts))
    if (order == np.arange(len(parts))).all():
        order = np.roll(order, 1)  # as written is another reading
    return np.concatenate([parts[place] for place in order])


def answer(truth: Truth, readings: Mapping[str, Float32]) -> Answers:
    """Classify pairs by the best threshold of the validation pairs, and rank the queries.

    Args:
        truth: of the corpus.
        readings: for each reading Float32[N, dimension], 0 where it lacks a document.
    """
    whole = _cosines(readings[WHOLE], truth.valid)
    threshold = choose_threshold(whole, truth.valid.labels)
    right, measures = {}, {}
    for reading, vectors in readings.items():
        scores = _cosines(vectors, truth.test)
        right[reading] = ((scores >= threshold) == truth.test.labels).astype(np.float64)
        found = measure_pairs(scores, truth.test.labels, threshold)
        measures[reading] = {name: found[name] for name in PAIR_MEASURES}
    row_of = {name: row for row, name in enumerate(truth.ids)}
    queries = [query for query in truth.queries if query in row_of]
    rows: Int64 = np.array([row_of[query] for query in queries], dtype=np.int64)
    run = rank(vector_system("vectors", "", readings[WHOLE]), truth.ids, queries, rows)
    judged = evaluate_per_query(run, truth.ids, truth.queries)
    return Answers(right, measures, judged.ndcg)


def auc_of(vectors: Float32, pairs: PairRows) -> float:
    """Return the AUC of pairs, of both labels, by the cosine of vectors Float32[N, dimension]."""
    return measure_pairs(_cosines(vectors, pairs), pairs.labels, 0.0)[AUC]


def _cosines(vectors: Float32, pairs: PairRows) -> Float32:
    return vector_system("vectors", "", vectors).score_pairs(pairs.sources, pairs.targets)
