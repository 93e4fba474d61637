"""What a comparison measures of trained models: pairs, retrieval, tokens read, milliseconds."""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from encoder.export.create import load_model
from encoder.models.architecture import EncoderModel
from evaluation.baselines import LEXICAL_BASELINES, lexical_baselines
from evaluation.judgements import PairRows, Qrels, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.metrics import choose_threshold, measure_pairs
from evaluation.report import (
    PairTask,
    RetrievalTask,
    report_pairs_of_seeds,
    report_retrieval_of_seeds,
)
from evaluation.systems import System, vector_system
from index.corpus.reader import read_documents
from training.collate import encode_slices, training_device
from training.comparison.runs import Prepared, encode_documents
from training.data.files import CorpusFiles, part_in_name
from training.data.pair_files import TEST
from training.data.sampling import DocumentSlice

_ROUNDS = 3
_TIMING_SEED = 5
_NAMES = {"bm25": "BM25", "tfidf": "TF-IDF", "lsa": "LSA"}


@dataclass(frozen=True, slots=True)
class Truth:
    """The labels that models are measured on.

    Attributes:
        valid: pairs that thresholds are chosen on.
        test: pairs that are classified.
        queries: judgements of the queries of the test part; none of a corpus of pairs alone.
    """

    valid: PairRows
    test: PairRows
    queries: Qrels

    @property
    def rows(self) -> list[int]:
        """The documents of its pairs, ascending."""
        ends = [self.valid.sources, self.valid.targets, self.test.sources, self.test.targets]
        found: list[int] = np.unique(np.concatenate(ends)).tolist()
        return found


def read_truth(files: CorpusFiles, ids: Sequence[str]) -> Truth:
    """Read the labels of a corpus.

    Args:
        files: with pairs of validation and test; with qrels and splits if queries are measured.
        ids: of its N documents.

    Raises:
        CorpusError: a file cannot be read, or a document of a pair is missing.
    """
    pairs = {part_in_name(path): read_pairs(path) for path in files.pairs}
    splits = read_splits(files.splits) if files.splits else {}
    qrels = read_qrels(files.qrels) if files.qrels else {}
    known = set(ids)
    return Truth(
        valid=find_pairs(pairs["valid"], ids),
        test=find_pairs(pairs["test"], ids),
        queries={q: r for q, r in qrels.items() if splits.get(q) == "test" and q in known},
    )


def word_systems(corpus: Path, ids: Sequence[str]) -> Iterator[System]:
    """Make BM25, TF-IDF and LSA over the whole texts of the N documents of a corpus.

    Raises:
        CorpusError: a text is missing, or the corpus has too few words for the next one.
    """
    texts = [document.text for document in read_documents(corpus, ids)]
    for system in lexical_baselines(LEXICAL_BASELINES, texts):
        yield replace(system, name=_NAMES[system.name])


def report_quality(
    vectors: Mapping[str, Sequence[Float32]],
    prepared: Prepared,
    truth: Truth,
    others: Sequence[System] = (),
) -> dict[str, Any]:
    """Measure models on test pairs and test queries, by length and against the first one.

    Args:
        vectors: for each model, Float32[N, dimension] of each seed.
        prepared: of one of the models; only documents and numbers of tokens are read.
        truth: of the corpus.
        others: systems that are measured beside the models.

    Returns:
        `pairs` and, if there are queries, `retrieval`, as `evaluation.report` makes them.

    Raises:
        CorpusError: no query has a judgement.
    """
    encoded = prepared.data.encoded
    models = {
        name: [vector_system(name, "cosine of document vectors", one) for one in seeds]
        for name, seeds in vectors.items()
    }
    reference = next(iter(models))
    models |= {one.name: [one] for one in others}
    longer: Int64 = np.maximum(
        encoded.tokens[truth.test.sources], encoded.tokens[truth.test.targets]
    )
    pairs = PairTask(truth.test, truth.valid, longer)
    report = {"pairs": report_pairs_of_seeds(models, pairs, reference)}
    if truth.queries:
        row_of = {name: row for row, name in enumerate(encoded.ids)}
        rows: Int64 = np.array([row_of[query] for query in truth.queries], dtype=np.int64)
        queries = RetrievalTask(
            encoded.ids, tuple(truth.queries), rows, encoded.tokens[rows], truth.queries
        )
        report["retrieval"] = report_retrieval_of_seeds(models, queries, reference)
    return report


def measure_lengths(
    model: EncoderModel, start: Checkpoint, prepared: Prepared, truth: Truth, lengths: Sequence[int]
) -> list[dict[str, float]]:
    """Measure pairs when only the first tokens of every document are read (SMITH, figure 4).

    The model stays the same, while the threshold is chosen on the validation pairs at each length.
    A length of less than a block is left out, and one beyond what the model reads is what it reads.

    Args:
        model: trained.
        start: the checkpoint it started from.
        prepared: what it reads.
        truth: of the corpus.
        lengths: in tokens.

    Returns:
        For each length the mean number of `tokens` read, `accuracy`, `F1` and `AUC`.
    """
    most, rows = prepared.recipe.max_blocks, truth.rows
    numbers = sorted({min(length // start.block_length, most) for length in lengths} - {0})
    vectors = np.zeros((len(prepared.data.encoded.ids), model.config.dimension), dtype=np.float32)
    points = []
    for blocks in numbers:
        vectors[rows] = encode_documents(model, prepared, start, rows, blocks)
        system = vector_system("vectors", "", vectors)
        chosen = system.score_pairs(truth.valid.sources, truth.valid.targets)
        threshold = choose_threshold(chosen, truth.valid.labels)
        scores = system.score_pairs(truth.test.sources, truth.test.targets)
        figures = measure_pairs(scores, truth.test.labels, threshold)
        read = prepared.data.encoded.archive.mean_tokens(blocks)
        points.append({"tokens": read} | figures)
    return points


def time_models(
    models: Mapping[str, tuple[Prepared, Checkpoint]], documents: int
) -> dict[str, dict[str, float]]:
    """Time the encoding of documents from their tokens, one at a time, in fp32 by PyTorch.

    The models take turns, so that a slow moment of the machine hits all of them.

    Args:
        models: for each what it reads, and its start: weights do not matter.
        documents: how many documents are encoded: of the test part, or of the corpus where that
            part has fewer, as where pairs share documents.

    Returns:
        For each the median `milliseconds` of a document over the rounds, and the median `ratio`
        to the first model in the same round.
    """
    device = training_device()
    opened = {key: load_model(start).to(device) for key, (_, start) in models.items()}
    seconds: dict[str, list[float]] = {key: [] for key in models}
    for number in range(_ROUNDS + 1):
        for key, (prepared, start) in models.items():
            took = _time(opened[key], prepared, start, documents if number else 1)
            if number:  # the first round only warms up
                seconds[key].append(took)
    reference = next(iter(seconds.values()))
    return {
        key: {
            "milliseconds": 1000 * statistics.median(rounds),
            "ratio": statistics.median(a / b for a, b in zip(rounds, reference, strict=True)),
        }
        for key, rounds in seconds.items()
    }


def _time(model: EncoderModel, prepared: Prepared, start: Checkpoint, documents: int) -> float:
    """Return the seconds of a document."""
    encoded = prepared.data.encoded
    rows = prepared.data.rows(TEST)
    if len(rows) < documents:
        rows = np.arange(len(encoded.ids))
    chosen = np.random.default_rng(_TIMING_SEED).permutation(rows)[:documents]
    reader = prepared.reader(start)
    since = time.perf_counter()
    for row in chosen.tolist():
        encode_slices(model, reader, [DocumentSlice(0, int(encoded.rows[row]))], from_tokens=True)
    return (time.perf_counter() - since) / len(chosen)
