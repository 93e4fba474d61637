"""The data of the ablations: corpora with pairs and queries, encoded once, and their evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Float32, Float64, Int64
from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import OnnxEncoder
from evaluation.encoded_corpus import keep_blocks
from evaluation.metrics import AUC, choose_threshold, evaluate_per_query, measure_pairs
from evaluation.systems import rank, vector_system
from index.errors import CorpusError
from index.progress import Progress
from training.data.corpus import TrainingCorpus, read_training_data
from training.data.files import CorpusFiles
from training.data.sampling import TrainingSource, find_sources

NDCG = "nDCG@10"
PAIR_MEASURES = ("accuracy", "F1", AUC)
LONGEST = 64  # blocks: the most that any ablation reads
_HALVES_SEED = 1
NEEDED = (
    "corpus.jsonl.gz",
    "pairs.train.jsonl.gz",
    "pairs.valid.jsonl.gz",
    "qrels.tsv",
    "splits.tsv",
)


@dataclass(frozen=True, slots=True)
class AblationData:
    """Training and validation data of the ablations; of test documents, only the blocks.

    Attributes:
        checkpoint: whose sentence level made the block vectors.
        corpora: blocks, and what is known of training and validation documents.
        sources: sampled by training.
        names: of the corpora.
    """

    checkpoint: Checkpoint
    corpora: tuple[TrainingCorpus, ...]
    sources: tuple[TrainingSource, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValidationScores:
    """How document vectors answer the validation queries and pairs of one corpus.

    Attributes:
        ndcg: Float64[Q], nDCG@10 of each query.
        scores: Float32[P], cosines of the pairs.
    """

    ndcg: Float64
    scores: Float32


def find_folders(data: Path, names: Sequence[str]) -> list[Path]:
    """Find the corpora of a folder that have pairs, judgements and splits, or the named ones.

    Raises:
        CorpusError: none is found, or a named one is incomplete.
    """
    known = {
        folder.name: folder
        for folder in sorted(data.iterdir() if data.is_dir() else ())
        if all((folder / name).is_file() for name in NEEDED)
    }
    missing = [name for name in names if name not in known]
    if missing or not known:
        which = f"{missing[0]!r} lacks one of" if missing else "no folder in it has"
        raise CorpusError(f"{data}: {which} {', '.join(NEEDED)}")
    return [known[name] for name in names or known]


def read_data(
    folders: Sequence[Path], encoder: OnnxEncoder, blocks: Path, progress: Progress
) -> AblationData:
    """Encode corpora, or open their kept encodings, and read their labels.

    Args:
        folders: of the corpora.
        encoder: whose sentence level is used.
        blocks: the folder that keeps block vectors and neighbours, by name of the corpus.
        progress: is notified.

    Raises:
        CorpusError: a corpus cannot be read.
        ArchiveError: the kept encoding is damaged or belongs to another encoder.
    """
    encoded = []
    for folder in folders:
        corpus, train, valid, qrels, splits = (folder / name for name in NEEDED)
        files = CorpusFiles(corpus, qrels, (train, valid), splits)  # no pairs for testing
        directory = blocks / folder.name / "blocks"
        encoded.append((files, keep_blocks(files.corpus, directory, encoder, progress)))
    corpora = read_training_data(encoded)
    directories = [blocks / folder.name / "neighbours" for folder in folders]
    sources = find_sources(corpora, directories, LONGEST, progress)
    names = tuple(folder.name for folder in folders)
    return AblationData(encoder.checkpoint, corpora, tuple(sources), names)


def evaluate_vectors(corpus: TrainingCorpus, vectors: Float32) -> ValidationScores:
    """Evaluate vectors on the validation queries, over all documents, and on the validation pairs.

    Args:
        corpus: of N documents.
        vectors: Float32[N, dimension], unit norm.
    """
    ids = corpus.encoded.ids
    row_of = {name: row for row, name in enumerate(ids)}
    queries = list(corpus.judgements)
    rows: Int64 = np.array([row_of[query] for query in queries], dtype=np.int64)
    system = vector_system("vectors", "", vectors)
    judged = evaluate_per_query(rank(system, ids, queries, rows), ids, corpus.judgements)
    pairs = corpus.valid_pairs
    return ValidationScores(judged.ndcg, system.score_pairs(pairs.sources, pairs.targets))


def pair_figures(corpus: TrainingCorpus, scores: Float32) -> dict[str, float]:
    """Return `PAIR_MEASURES` of the validation pairs of a corpus.

    The threshold of each half of the pairs is chosen on the other half: there is no third
    set of pairs that neither training nor the measurement uses.
    """
    labels = corpus.valid_pairs.labels
    order = np.random.default_rng(_HALVES_SEED).permutation(len(labels))
    above = np.empty_like(scores)
    for half in (0, 1):
        here, there = order[half::2], order[1 - half :: 2]
        above[here] = scores[here] - choose_threshold(scores[there], labels[there])
    figures = measure_pairs(above, labels, 0.0) | {AUC: measure_pairs(scores, labels, 0.0)[AUC]}
    return {name: figures[name] for name in PAIR_MEASURES}
