"""What an experiment measures of trained models: pairs, retrieval, tokens read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from benchmarks.models.runs import Prepared, encode_documents
from encoder.arrays import Float32, Int64
from encoder.checkpoint import Checkpoint
from evaluation.baselines import lexical_baselines
from evaluation.judgements import PairRows, Qrels, find_pairs, read_pairs, read_qrels, read_splits
from evaluation.metrics import choose_threshold, measure_pairs
from evaluation.report import PairTask, RetrievalTask, report_pairs, report_retrieval
from evaluation.systems import System, vector_system
from index.corpus.reader import read_documents
from index.errors import CorpusError
from training.data.files import CorpusFiles, part_in_name
from training.models.architecture import EncoderModel

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


def read_truth(files: CorpusFiles, prepared: Prepared) -> Truth:
    """Read the labels of the documents of a corpus.

    Raises:
        CorpusError: a document of a pair is missing, or no document of a part is judged.
    """
    ids = prepared.data.texts.ids
    pairs = {part_in_name(path): read_pairs(path) for path in files.pairs}
    splits = read_splits(files.splits) if files.splits else {}
    qrels = read_qrels(files.qrels) if files.qrels else {}
    known = set(ids)
    queries = {q: r for q, r in qrels.items() if splits.get(q) == "test" and q in known}
    for part, judged in (("validation", prepared.data.judgements), ("test", queries)):
        if files.qrels and not judged:
            raise CorpusError(f"{files.qrels}: judges no document of the {part} part")
    return Truth(find_pairs(pairs["valid"], ids), find_pairs(pairs["test"], ids), queries)


def word_systems(corpus: Path, ids: Sequence[str], console: Console) -> list[System]:
    """Make BM25, TF-IDF and LSA over the whole texts of the N documents of a corpus.

    Those that a small corpus has too few words for are left out.
    """
    texts, made = [document.text for document in read_documents(corpus, ids)], []
    try:
        for system in lexical_baselines(tuple(_NAMES), texts):
            made.append(replace(system, name=_NAMES[system.name]))
    except CorpusError as error:
        console.print(f"left out: {error}")
    return made


def report_quality(
    vectors: Mapping[str, Sequence[Float32]],
    prepared: Prepared,
    truth: Truth,
    others: Sequence[System],
) -> dict[str, Any]:
    """Measure models and other systems on test pairs and test queries, against the first model.

    `vectors` has for each model Float32[N, dimension] of each seed; of `prepared`, only documents
    and numbers of tokens are read. Returns what `evaluation.report` makes.
    """
    encoded = prepared.data.texts
    models = {
        name: [vector_system(name, "cosine of document vectors", seed) for seed in seeds]
        for name, seeds in vectors.items()
    }
    reference = next(iter(models))
    models |= {system.name: [system] for system in others}
    longer: Int64 = np.maximum(
        encoded.tokens[truth.test.sources], encoded.tokens[truth.test.targets]
    )
    pairs = PairTask(truth.test, truth.valid, longer)
    report = {"pairs": report_pairs(models, pairs, reference)}
    if truth.queries:
        row_of = {name: row for row, name in enumerate(encoded.ids)}
        rows: Int64 = np.array([row_of[query] for query in truth.queries], dtype=np.int64)
        queries = RetrievalTask(
            encoded.ids, tuple(truth.queries), rows, encoded.tokens[rows], truth.queries
        )
        report["retrieval"] = report_retrieval(models, queries, reference)
    return report


def measure_lengths(
    model: EncoderModel, start: Checkpoint, prepared: Prepared, truth: Truth, lengths: Sequence[int]
) -> list[dict[str, float]]:
    """Measure pairs when only the first tokens of every document are read (SMITH, figure 4).

    The model stays the same, while the threshold is chosen on the validation pairs at each length.
    A length of less than a block is left out, and one beyond what the model reads is what it reads.
    """
    valid, test, most = truth.valid, truth.test, prepared.recipe.max_blocks
    ends = np.concatenate([valid.sources, valid.targets, test.sources, test.targets])
    rows = np.unique(ends).tolist()
    numbers = sorted({min(length // start.block_length, most) for length in lengths} - {0})
    vectors = np.zeros((len(prepared.data.texts.ids), model.config.dimension), dtype=np.float32)
    points = []
    for blocks in numbers:
        vectors[rows] = encode_documents(model, prepared, start, rows, blocks)
        system = vector_system("vectors", "", vectors)
        threshold = choose_threshold(system.score_pairs(valid.sources, valid.targets), valid.labels)
        scores = system.score_pairs(test.sources, test.targets)
        figures = measure_pairs(scores, test.labels, threshold)
        read = prepared.data.texts.archive.mean_tokens(blocks)
        points.append({"tokens": read} | figures)
    return points
