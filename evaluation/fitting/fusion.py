"""Fit the weights of the standardised channels on validation queries of several corpora.

    python -m evaluation.fitting.fusion --data FOLDER --blocks FOLDER

prints the fitted rule with its nDCG@10, and the nDCG@10 on each corpus of a rule that was fitted
without it; `--write` stores the rule in the checkpoint.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from encoder.alignment.space import at_equal_distances
from encoder.arrays import Float32, Float64
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.encoder import Encoder
from encoder.opening import open_encoder
from evaluation.baselines import find_blocks, mean_vectors
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.experiment import Vectors, retrieval_task
from evaluation.judgements import read_qrels, read_splits
from evaluation.metrics import evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.systems import (
    System,
    align_first,
    corpus_statistics,
    lexical_system,
    rank_scores,
    vector_system,
)
from index.corpus.reader import read_documents
from index.embed import EmbeddedCorpus
from index.errors import CorpusError
from index.progress import SilentProgress
from index.search.fusion import (
    DEFAULT_RULE,
    ChannelStatistics,
    ChannelWeights,
    LinearFusion,
    NullStatistics,
    StandardRule,
    apply_rule,
    fuse,
    write_fusion,
)

# The weights that are tried, of standardised channels: words have 1 in hybrid mode, and the
# alignment has 1 in semantic mode.
ALIGNMENT = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0)
VECTOR = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
SEMANTIC_VECTOR = (0.0, 0.2, 0.4, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0)

MOST_QUERIES = 400  # of a corpus, which are ranked for each pair of weights


@dataclass(frozen=True, slots=True)
class FusionCorpus:
    """The scores of the validation queries of one corpus.

    Attributes:
        task: Q queries and their judgements.
        vector: Float32[Q, N], cosines of the document vectors.
        lexical: Float32[Q, N], cosines of the words.
        alignment: Float32[Q, N], NaN for documents that are not among the first candidates of
            hybrid mode.
        semantic_alignment: the same for the first candidates of semantic mode.
        statistics: of random pairs of the corpus.
    """

    task: RetrievalTask
    vector: Float32
    lexical: Float32
    alignment: Float32
    semantic_alignment: Float32
    statistics: NullStatistics


@dataclass(frozen=True, slots=True)
class WeightSurface:
    """The nDCG@10 of corpora for all weights.

    Attributes:
        hybrid: Float64[corpora, alignment, vector].
        semantic: Float64[corpora, vector].
    """

    hybrid: Float64
    semantic: Float64

    def without(self, number: int) -> "WeightSurface":
        """Return the surface without a corpus."""
        return WeightSurface(
            np.delete(self.hybrid, number, axis=0), np.delete(self.semantic, number, axis=0)
        )


def score_corpus(embedded: EmbeddedCorpus, task: RetrievalTask, lexical: System) -> FusionCorpus:
    """Score the queries of a task by each channel.

    Raises:
        ValueError: the blocks of the corpus are not aligned.
    """
    if embedded.aligned is None:
        raise ValueError("the blocks of the corpus are not aligned")
    vectors = vector_system("vector", "", embedded.vectors)
    cosines, words = vectors.score(task.rows), lexical.score(task.rows)
    statistics = corpus_statistics(vectors, lexical, embedded.aligned, len(embedded.ids))
    first = DEFAULT_RULE.resolve(statistics)
    aligned = [
        align_first(embedded.aligned, task.rows, scores)
        for scores in (fuse(first, cosines, words), cosines)
    ]
    known = statistics or DEFAULT_RULE.statistics
    return FusionCorpus(task, cosines, words, aligned[0], aligned[1], known)


def mean_ndcg(corpus: FusionCorpus, scores: Float32) -> float:
    """Return the nDCG@10 of scores Float32[Q, N]."""
    task = corpus.task
    run = rank_scores(scores, task.ids, task.query_ids)
    return float(evaluate_per_query(run, task.ids, task.qrels).ndcg.mean())


def hybrid_scores(corpus: FusionCorpus, rule: LinearFusion) -> Float32:
    """Return the scores of hybrid mode Float32[Q, N]."""
    return apply_rule(rule, "hybrid", corpus.vector, corpus.alignment, corpus.lexical)[1]


def semantic_mode_scores(corpus: FusionCorpus, rule: LinearFusion) -> Float32:
    """Return the scores of semantic mode Float32[Q, N]."""
    return apply_rule(rule, "semantic", corpus.vector, corpus.semantic_alignment)[1]


def measure_weights(corpora: Sequence[FusionCorpus], line: tuple[float, float]) -> WeightSurface:
    """Return the nDCG@10 of hybrid and semantic mode for all weights."""
    hybrid, semantic = [], []
    for corpus in corpora:

        def resolved(
            in_hybrid: ChannelWeights,
            in_semantic: ChannelWeights,
            statistics: NullStatistics = corpus.statistics,
        ) -> LinearFusion:
            return StandardRule(in_hybrid, in_semantic, statistics, *line).resolve()

        other = ChannelWeights(1.0, 1.0, 1.0)
        hybrid.append(
            [
                [
                    mean_ndcg(
                        corpus, hybrid_scores(corpus, resolved(ChannelWeights(1.0, a, v), other))
                    )
                    for v in VECTOR
                ]
                for a in ALIGNMENT
            ]
        )
        semantic.append(
            [
                mean_ndcg(
                    corpus,
                    semantic_mode_scores(corpus, resolved(other, ChannelWeights(0.0, 1.0, v))),
                )
                for v in SEMANTIC_VECTOR
            ]
        )
    return WeightSurface(np.array(hybrid), np.array(semantic))


def choose_rule(
    ndcg: WeightSurface, corpora: Sequence[FusionCorpus], line: tuple[float, float]
) -> StandardRule:
    """Choose the weights of the highest mean nDCG@10 over corpora, for each mode.

    Every corpus counts the same, however many queries it has. The surface is flat around its
    maximum, so the mean over neighbouring weights decides rather than a single point.
    """
    hybrid, semantic = (smoothed(surface.mean(axis=0)) for surface in (ndcg.hybrid, ndcg.semantic))
    row, column = np.unravel_index(np.argmax(hybrid), hybrid.shape)
    return StandardRule(
        ChannelWeights(1.0, ALIGNMENT[row], VECTOR[column]),
        ChannelWeights(0.0, 1.0, SEMANTIC_VECTOR[np.argmax(semantic)]),
        mean_statistics([corpus.statistics for corpus in corpora]),
        *line,
    )


def mean_statistics(corpora: Sequence[NullStatistics]) -> NullStatistics:
    """Return the mean of the statistics of corpora, each of which counts the same."""

    def mean(channel: str) -> ChannelStatistics:
        found = [getattr(statistics, channel) for statistics in corpora]
        values = np.array([[known.mean, known.deviation, known.tail] for known in found if known])
        return ChannelStatistics(*values.mean(axis=0).round(6).tolist())

    return NullStatistics(
        sum(statistics.documents for statistics in corpora),
        sum(statistics.pairs for statistics in corpora),
        *map(mean, ("vector", "alignment", "lexical")),
    )


def smoothed(values: Float64) -> Float64:
    """Return the mean of each of the values, Float64[A] or Float64[A, B], and its neighbours."""
    padded = np.pad(values, 1, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3,) * values.ndim)
    means: Float64 = windows.mean(axis=tuple(range(values.ndim, 2 * values.ndim)))
    return means


def fit_expected(corpora: Sequence[FusionCorpus]) -> tuple[float, float]:
    """Fit the line from vector score to alignment score by least squares, corpora counting alike.

    Returns:
        Slope, at least 0, and intercept.
    """
    sums: Float64 = np.zeros(5)
    for corpus in corpora:
        known = ~np.isnan(corpus.alignment)
        x, y = corpus.vector[known].astype(np.float64), corpus.alignment[known].astype(np.float64)
        sums += [1.0, x.mean(), y.mean(), (x * x).mean(), (x * y).mean()]
    _, x, y, xx, xy = sums / sums[0]
    slope = max(0.0, (xy - x * y) / max(xx - x * x, 1e-12))
    return float(slope), float(y - slope * x)


def describe(
    corpora: Mapping[str, FusionCorpus], ndcg: WeightSurface, line: tuple[float, float]
) -> dict[str, object]:
    """Return a fit as JSON: nDCG@10 of each channel and mode, with each corpus left out too.

    For semantic mode also by weight of the vector.
    """
    known = list(corpora.values())
    rule = choose_rule(ndcg, known, line)
    left_out = {}
    for number, (name, corpus) in enumerate(corpora.items()):
        if len(corpora) > 1:
            others = known[:number] + known[number + 1 :]
            other = choose_rule(ndcg.without(number), others, line)
            figures = mode_figures(corpus, other)
            modes = {mode: figures[mode] for mode in ("semantic", "hybrid")}
            weights = {"hybrid": asdict(other.hybrid), "semantic": asdict(other.semantic)}
            left_out[name] = {**modes, "weights": weights}
    return {
        "rule": asdict(rule),
        "nDCG@10": {name: mode_figures(corpus, rule) for name, corpus in corpora.items()},
        "fitted without it": left_out,
        "semantic mode by weight of the vector": {
            name: {
                f"{weight:g}": round(ndcg, 4)
                for weight, ndcg in zip(SEMANTIC_VECTOR, row, strict=True)
            }
            for name, row in zip(corpora, ndcg.semantic.tolist(), strict=True)
        },
    }


def mode_figures(corpus: FusionCorpus, standard: StandardRule) -> dict[str, float]:
    """Return the nDCG@10 of each channel and mode of search."""
    rule = standard.resolve(corpus.statistics)
    unaligned = replace(corpus, alignment=np.full_like(corpus.alignment, np.nan))
    systems: dict[str, Callable[[], Float32]] = {
        "vector": lambda: corpus.vector,
        "semantic": lambda: semantic_mode_scores(corpus, rule),
        "lexical": lambda: corpus.lexical,
        "hybrid, not aligned": lambda: hybrid_scores(unaligned, rule),
        "hybrid": lambda: hybrid_scores(corpus, rule),
    }
    return {name: round(mean_ndcg(corpus, make()), 4) for name, make in systems.items()}


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora with judgements.")],
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")],
    checkpoint: Annotated[Path, typer.Option(help="The checkpoint.")] = DEFAULT_CHECKPOINT,
    part: Annotated[str, typer.Option(help="The queries to fit on.")] = "valid",
    mean: Annotated[
        bool, typer.Option("--mean", help="For the mean of block vectors: `DEFAULT_RULE`.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Store the rule.")] = False,
) -> None:
    """Fit the fusion and print it."""
    if mean and write:
        raise typer.BadParameter("--mean cannot be combined with --write")
    opened = load_checkpoint(checkpoint)
    encoder = open_encoder(opened)
    folders = sorted(path.parent for path in data.glob("*/qrels.tsv"))
    if not folders:
        raise CorpusError(f"{data}: there is no corpus with judgements")
    corpora = {
        folder.name: _read_corpus(folder, blocks / folder.name, encoder, part, mean=mean)
        for folder in folders
    }
    line = fit_expected(list(corpora.values()))
    ndcg = measure_weights(list(corpora.values()), line)
    typer.echo(json.dumps(describe(corpora, ndcg, line), indent=2))
    if write:
        write_fusion(opened, choose_rule(ndcg, list(corpora.values()), line))


def _read_corpus(
    folder: Path, blocks: Path, encoder: Encoder, part: str, *, mean: bool
) -> FusionCorpus:
    """Read one corpus, its block vectors and its queries."""
    corpus = folder / "corpus.jsonl.gz"
    encoded = keep_blocks(corpus, blocks, encoder, SilentProgress())
    embedded = embed_encoded_corpus(encoded, encoder)
    if mean:
        found = find_blocks(encoded, embedded.ids)
        embedded = replace(embedded, vectors=mean_vectors(found, found.ends - found.starts))
    documents = read_documents(corpus, embedded.ids)
    parts = read_splits(folder / "splits.tsv")
    qrels = read_qrels(folder / "qrels.tsv")
    queries = [name for name in embedded.ids if parts.get(name) == part and name in qrels]
    chosen = {queries[row] for row in at_equal_distances(len(queries), MOST_QUERIES).tolist()}
    task = retrieval_task(Vectors(embedded, embedded), qrels, chosen)
    lexical = lexical_system(
        [document.text for document in documents], [document.title for document in documents]
    )
    return score_corpus(embedded, task, lexical)


if __name__ == "__main__":
    typer.run(main)
