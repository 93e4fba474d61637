"""Fit the maps from score to match probability on labelled pairs, and measure their error.

The expected calibration error is the sum over bins of (share of pairs in the bin) times |mean
probability - share of matches| (Guo et al. 2017, equation 3, with bins of equal width). With few
pairs it is not 0 even if every probability is right: `errors_of_perfect` estimates how large it is
then. scikit-learn's `calibration_curve` has neither weights, nor bins of equal mass with ties, nor
the error itself.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.alignment.space import at_equal_distances
from encoder.arrays import Bool, Float64, Int64
from encoder.calibration import (
    LEAST_TAIL,
    ByTail,
    FittedMap,
    FittedOn,
    KindCalibration,
    Logistic,
    MapError,
    match_probabilities,
    standard_scores,
)
from encoder.checkpoint import file_digest
from encoder.encoder import Encoder
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.judgements import Qrels, read_qrels, read_splits
from index.corpus.reader import read_documents
from index.errors import CorpusError
from index.lexical.scoring import rows_of_texts
from index.progress import Progress, SilentProgress
from index.search.corpus_calibration import (
    Channels,
    NullDistribution,
    measure_channels,
    score_channels,
)
from index.search.records import Mode
from index.search.score import LinearFusion, read_fusion

BINS = 10  # as Naeini et al. 2015; with more, a few hundred pairs measure mostly noise
_SIMULATIONS = 500


def equal_mass_bins(probabilities: Float64, weights: Float64, bins: int = BINS) -> Int64:
    """Return the bin of each pair, Int64[N]; bins have the same weight.

    Equal probabilities are in the same bin.
    """
    order = np.argsort(probabilities, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.minimum(before / weights.sum() * bins, bins - 1).astype(np.int64)
    _, first, which = np.unique(probabilities[order], return_index=True, return_inverse=True)
    numbers[order] = numbers[order][first[which]]
    return numbers


def equal_width_bins(probabilities: Float64, bins: int = BINS) -> Int64:
    """Return the bin of each pair, Int64[N]; bins have the same width."""
    return np.minimum(probabilities * bins, bins - 1).astype(np.int64)


def expected_calibration_error(
    probabilities: Float64, labels: Int64, weights: Float64, numbers: Int64
) -> float:
    """Return the expected calibration error over bins Int64[N], between 0 and 1."""
    gaps = np.bincount(numbers, weights * (probabilities - labels))
    return float(np.abs(gaps).sum() / weights.sum())


def errors_of_perfect(probabilities: Float64, weights: Float64, numbers: Int64) -> Float64:
    """Simulate the expected calibration error of as many probabilities that are all right."""
    random = np.random.default_rng(0)
    errors: Float64 = np.empty(_SIMULATIONS)
    for number in range(_SIMULATIONS):
        labels = (random.random(len(probabilities)) < probabilities).astype(np.int64)
        errors[number] = expected_calibration_error(probabilities, labels, weights, numbers)
    return errors


MIN_OF_A_CLASS = 20
FOLDS = 5
MOST_QUERIES, MOST_MATCHES = 300, 5  # of a corpus, and of a query
MIN_TAILS = 5  # corpora; fewer do not show how the map depends on the tail
_NOT_HIGHER = "matches do not score higher than other pairs: nothing can be calibrated"
_SMALLEST = 1e-12  # smallest probability to take the logarithm of


@dataclass(frozen=True, slots=True)
class ScoredPairs:
    """Judged pairs of one corpus, as `draw_pairs` draws them.

    Attributes:
        fitted_on: describes the pairs.
        scores: Float64[N].
        labels: Int64[N], 1 for a match, else 0.
        queries: Int64[N], the row of the query of each.
        random_pairs: scores of random pairs of the same corpus.
    """

    fitted_on: FittedOn
    scores: Float64
    labels: Int64
    queries: Int64
    random_pairs: NullDistribution

    @property
    def standard(self) -> Float64:
        """Return the standard scores, Float64[N]."""
        return standard_scores(self.scores, self.random_pairs.median, self.random_pairs.tail)


@dataclass(frozen=True, slots=True)
class Sample:
    """The data that a map is fitted on.

    Attributes:
        inputs: Float64[N].
        labels: Int64[N].
        weights: Float64[N].
        folds: Int64[N], the cross-validation fold of each pair.
    """

    inputs: Float64
    labels: Int64
    weights: Float64
    folds: Int64

    def rows(self, chosen: Bool) -> "Sample":
        """Return the pairs selected by a mask Bool[N]."""
        return Sample(
            self.inputs[chosen], self.labels[chosen], self.weights[chosen], self.folds[chosen]
        )


def fit_kind(corpora: Sequence[ScoredPairs]) -> KindCalibration:
    """Fit the map to the pairs of several corpora, each with the same weight.

    The error is measured on each corpus with a map that was fitted without it, since users bring
    corpora that the map was not fitted on.
    """
    for corpus in corpora:
        _check(corpus)
    stated = state_left_out(corpora)
    counts = [len(corpus.labels) for corpus in corpora]
    weights = np.repeat([sum(counts) / len(corpora) / count for count in counts], counts)
    labels = np.concatenate([corpus.labels for corpus in corpora])
    return KindCalibration(
        fit_by_tail(corpora),
        measure_error(np.concatenate(stated), labels, weights),
        {
            corpus.fitted_on.name: measure_error(
                probabilities, corpus.labels, np.ones(len(probabilities))
            ).equal_mass
            for corpus, probabilities in zip(corpora, stated, strict=True)
        },
        tuple(corpus.fitted_on for corpus in corpora),
    )


def state_left_out(corpora: Sequence[ScoredPairs]) -> list[Float64]:
    """Return the probabilities of the pairs of each corpus by a map fitted without it.

    Raises:
        CorpusError: there is one corpus only.
    """
    if len(corpora) < 2:
        raise CorpusError("a single corpus: the error is measured on one that is left out")
    found = []
    for number, corpus in enumerate(corpora):
        fitted = fit_by_tail([*corpora[:number], *corpora[number + 1 :]])
        logistic = fitted.of_corpus(corpus.random_pairs.tail)
        found.append(match_probabilities(logistic, corpus.standard))
    return found


def fit_by_tail(corpora: Sequence[ScoredPairs]) -> ByTail:
    """Fit the map; with fewer than `MIN_TAILS` corpora, one that is the same for every tail.

    Raises:
        CorpusError: higher scores do not mean more matches.
    """
    counts = [len(corpus.labels) for corpus in corpora]
    tails = np.log([max(corpus.random_pairs.tail, LEAST_TAIL) for corpus in corpora])
    scores = np.concatenate([corpus.standard for corpus in corpora])
    known = np.repeat(tails if len(corpora) >= MIN_TAILS else np.zeros(len(corpora)), counts)
    slope, of_tail, intercept_of_tail, intercept = _fit_logistic(
        np.stack([scores, scores * known, known], axis=1),
        np.concatenate([corpus.labels for corpus in corpora]),
        np.repeat([1.0 / count for count in counts], counts),
    )
    shortest, longest = float(tails.min()), float(tails.max())
    fitted = ByTail(slope, of_tail, intercept, intercept_of_tail, shortest, longest)
    if not fitted.rises:
        raise CorpusError(_NOT_HIGHER)
    return fitted


def fit_map(sample: Sample) -> FittedMap:
    """Fit a map; its error is measured on each fold by a map that was fitted without it."""
    predicted = np.empty(len(sample.labels))
    for fold in np.unique(sample.folds):
        left_out = sample.folds == fold
        fitted = fit_platt(sample.rows(~left_out))
        predicted[left_out] = match_probabilities(fitted, sample.inputs[left_out])
    return FittedMap(fit_platt(sample), measure_error(predicted, sample.labels, sample.weights))


def fit_platt(sample: Sample) -> Logistic:
    """Fit a logistic map.

    Raises:
        CorpusError: higher inputs do not mean more matches.
    """
    slope, intercept = _fit_logistic(sample.inputs[:, None], sample.labels, sample.weights)
    if not slope > 0:
        raise CorpusError(_NOT_HIGHER)
    return Logistic(slope, intercept)


def _fit_logistic(inputs: Float64, labels: Int64, weights: Float64) -> list[float]:
    """Return the coefficients of inputs Float64[N, F], and the intercept.

    The targets are those of Platt 1999, section 2.2: (n + 1) / (n + 2), not 1.
    """
    from sklearn.linear_model import LogisticRegression

    matches = int(labels.sum())
    targets = np.where(labels == 1, (matches + 1) / (matches + 2), 1 / (len(labels) - matches + 2))
    # A pair with a target between 0 and 1 counts twice, with part of its weight as each class.
    centres, widths = inputs.mean(axis=0), inputs.std(axis=0)
    widths[widths == 0] = 1.0
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1_000)
    model.fit(
        np.tile((inputs - centres) / widths, (2, 1)),
        np.repeat([1, 0], len(targets)),
        np.concatenate([targets * weights, (1 - targets) * weights]),
    )
    slopes = model.coef_[0] / widths
    return [*slopes.tolist(), float(model.intercept_[0] - slopes @ centres)]


def measure_error(probabilities: Float64, labels: Int64, weights: Float64) -> MapError:
    """Measure predicted probabilities Float64[N] against labels Int64[N]."""
    of_truth = np.where(labels == 1, probabilities, 1.0 - probabilities)
    losses = -np.log(np.maximum(of_truth, _SMALLEST))
    mass = equal_mass_bins(probabilities, weights)
    width = equal_width_bins(probabilities)
    return MapError(
        log_loss=float(weights @ losses / weights.sum()),
        equal_mass=expected_calibration_error(probabilities, labels, weights, mass),
        equal_width=expected_calibration_error(probabilities, labels, weights, width),
        equal_mass_of_perfect=float(errors_of_perfect(probabilities, weights, mass).mean()),
    )


def _check(pairs: ScoredPairs) -> None:
    name = pairs.fitted_on.name
    if not np.isfinite(pairs.scores).all():
        raise CorpusError(f"{name}: a score is not a finite number")
    matches = int(pairs.labels.sum())
    others = len(pairs.labels) - matches
    if min(matches, others) < MIN_OF_A_CLASS:
        raise CorpusError(
            f"{name}: {matches} pairs with label 1 and {others} with label 0; "
            f"at least {MIN_OF_A_CLASS} of each are needed"
        )


def draw_pairs(judged: Qrels, queries: Sequence[str], ids: Sequence[str]) -> tuple[Int64, Int64]:
    """Draw pairs of which half match: relevant documents of queries, and as many at random.

    Documents drawn at random are nearly never related to the query, judged or not. The first ones
    of a ranking are no negatives: judgements miss too many that are relevant.

    Args:
        judged: relevant documents of each query; those of another corpus are left out.
        queries: ids to draw for, each at most `MOST_MATCHES` pairs of each kind.
        ids: of the corpus.

    Returns:
        Pairs Int64[P, 2] of rows, the query first, and labels Int64[P].
    """
    random = np.random.default_rng(0)
    rows = {name: row for row, name in enumerate(ids)}
    related: dict[str, set[str]] = defaultdict(set)
    for query, documents in judged.items():
        for document in (name for name, grade in documents.items() if grade > 0):
            related[query].add(document)
            related[document].add(query)
    pairs: list[tuple[int, int, int]] = []
    for query in queries:
        known = {rows[name] for name in related[query] if name in rows}
        matches = sorted(known - {rows[query]})
        others = np.setdiff1d(np.arange(len(ids)), [rows[query], *known])
        number = min(len(matches), len(others), MOST_MATCHES)
        for label, some in ((1, matches), (0, others)):
            drawn = random.choice(some, number, replace=False) if number else ()
            pairs += [(rows[query], int(row), label) for row in drawn]
    found = np.array(pairs, dtype=np.int64).reshape(-1, 3)
    return found[:, :2], found[:, 2]


def read_scored_pairs(
    folder: Path, blocks: Path, encoder: Encoder, progress: Progress
) -> tuple[Channels, LinearFusion, dict[Mode, ScoredPairs]]:
    """Score pairs of the queries of split `valid` of a corpus in each mode, and random pairs too.

    Args:
        folder: with `corpus.jsonl.gz`, `qrels.tsv` and `splits.tsv`.
        blocks: folder that keeps the block vectors of the corpus; what is missing is encoded.
        encoder: of the checkpoint.
        progress: advances by documents and pairs.
    """
    path, qrels = folder / "corpus.jsonl.gz", folder / "qrels.tsv"
    embedded = embed_encoded_corpus(keep_blocks(path, blocks, encoder, progress), encoder)
    documents = read_documents(path, embedded.ids)
    words = rows_of_texts([each.text for each in documents], [each.title for each in documents])
    channels = Channels(embedded.vectors, words, embedded.aligned)
    measured = measure_channels(channels, read_fusion(encoder.checkpoint), progress)
    parts, judged = read_splits(folder / "splits.tsv"), read_qrels(qrels)
    queries = [name for name in embedded.ids if parts.get(name) == "valid" and name in judged]
    chosen = [queries[row] for row in at_equal_distances(len(queries), MOST_QUERIES).tolist()]
    pairs, labels = draw_pairs(judged, chosen, embedded.ids)
    fitted_on = FittedOn(folder.name, len(labels), int(labels.sum()), file_digest(qrels))
    scored = score_channels(channels, pairs, SilentProgress()).by_mode(measured.rule)
    found = {
        mode: ScoredPairs(fitted_on, scores, labels, pairs[:, 0], measured.kinds[mode])
        for mode, scores in scored.items()
    }
    return channels, measured.rule, found
