"""Fit the maps from score to match probability on labelled pairs, and measure their error.

The expected calibration error is the sum over bins of (share of pairs in the bin) times |mean
probability - share of matches| (Guo et al. 2017, equation 3, with bins of equal width). With few
pairs it is not 0 even if every probability is right: `error_of_perfect` estimates how large it is
then. scikit-learn's `calibration_curve` has neither weights, nor bins of equal mass with ties, nor
the error itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from encoder.arrays import Bool, Float64, Int64
from encoder.calibration import (
    FittedMap,
    FittedOn,
    KindCalibration,
    Logistic,
    MapError,
    PiecewiseLinear,
    ProbabilityMap,
    log_odds,
    match_probabilities,
)
from encoder.checkpoint import file_digest
from evaluation.judgements import find_pairs, read_pairs
from index.errors import CorpusError
from index.optional_dependencies import require_extra
from index.progress import Progress, SilentProgress
from index.search.corpus_calibration import (
    Channels,
    NullDistribution,
    false_positive_rates,
    measure_channels,
    score_channels,
)
from index.search.fusion import LinearFusion, StandardRule
from index.search.records import Mode

BINS = 10  # as Naeini et al. 2015; with more, a few hundred pairs measure mostly noise
_SIMULATIONS = 500


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Pairs of similar probability.

    Attributes:
        share: of all pairs, by weight.
        probability: mean predicted probability.
        matches: share of them that are matches.
        pairs: their number.
    """

    share: float
    probability: float
    matches: float
    pairs: int


@dataclass(frozen=True, slots=True)
class PerfectError:
    """The calibration error of perfect probabilities on as many pairs.

    Attributes:
        mean: over simulations.
        high: 95th percentile of simulations.
    """

    mean: float
    high: float


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


def reliability(
    probabilities: Float64, labels: Int64, weights: Float64, numbers: Int64
) -> tuple[ReliabilityBin, ...]:
    """Compare probabilities Float64[N] with labels Int64[N] in the filled bins of Int64[N]."""
    found = []
    for number in np.unique(numbers):
        chosen = numbers == number
        weight = weights[chosen].sum()
        found.append(
            ReliabilityBin(
                share=float(weight / weights.sum()),
                probability=float(weights[chosen] @ probabilities[chosen] / weight),
                matches=float(weights[chosen] @ labels[chosen] / weight),
                pairs=int(chosen.sum()),
            )
        )
    return tuple(found)


def expected_calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the expected calibration error over these bins, between 0 and 1."""
    return sum(bin_.share * abs(bin_.probability - bin_.matches) for bin_ in bins)


def error_of_perfect(
    probabilities: Float64, weights: Float64, numbers: Int64, *, seed: int = 0
) -> PerfectError:
    """Simulate the expected calibration error of probabilities that are all right."""
    random = np.random.default_rng(seed)
    count = int(numbers.max()) + 1
    errors = np.empty(_SIMULATIONS)
    for number in range(_SIMULATIONS):
        labels = random.random(len(probabilities)) < probabilities
        gaps = np.bincount(numbers, weights * (probabilities - labels), minlength=count)
        errors[number] = np.abs(gaps).sum() / weights.sum()
    return PerfectError(float(errors.mean()), float(np.quantile(errors, 0.95)))


MIN_OF_A_CLASS = 20
FOLDS = 5
_SMALLEST = 1e-12  # smallest probability to take the logarithm of


@dataclass(frozen=True, slots=True)
class ScoredPairs:
    """Labelled pairs of one corpus.

    Attributes:
        fitted_on: describes the pairs.
        scores: Float64[N].
        labels: Int64[N], 1 for a match, else 0.
        random_pairs: scores of random pairs of the same corpus.
    """

    fitted_on: FittedOn
    scores: Float64
    labels: Int64
    random_pairs: NullDistribution


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


def fit_kind(corpora: Sequence[ScoredPairs], *, seed: int = 0) -> KindCalibration:
    """Fit the map on the pairs of several corpora, each corpus with the same weight.

    The error is measured by cross-validation. With several corpora a fold is a whole corpus, since
    users bring a corpus that the maps were not fitted on; a single one is divided at random.
    """
    for corpus in corpora:
        _check(corpus)
    counts = [len(corpus.labels) for corpus in corpora]
    labels = np.concatenate([corpus.labels for corpus in corpora])
    weights = np.repeat([len(labels) / len(corpora) / count for count in counts], counts)
    folds = np.repeat(np.arange(len(corpora)), counts)
    if len(corpora) == 1:
        folds = np.random.default_rng(seed).permutation(len(labels)) % FOLDS
    odds = np.concatenate(
        [log_odds(false_positive_rates(corpus.random_pairs, corpus.scores)) for corpus in corpora]
    )
    return KindCalibration(
        by_false_positive_rate=fit_map(Sample(odds, labels, weights, folds)),
        fitted_on=tuple(corpus.fitted_on for corpus in corpora),
    )


def fit_map(sample: Sample) -> FittedMap:
    """Fit a map by each method and keep the one of the lower cross-validated log loss."""
    methods: dict[str, Callable[[Sample], ProbabilityMap]] = {
        "platt": fit_platt,
        "isotonic": fit_isotonic,
    }
    errors = {name: _cross_validate(sample, fit) for name, fit in methods.items()}
    best = min(errors, key=lambda name: errors[name].log_loss)
    return FittedMap(methods[best](sample), errors)


def fit_platt(sample: Sample) -> Logistic:
    """Fit a logistic map to Platt's targets (Platt 1999, section 2.2): (n + 1) / (n + 2), not 1.

    Raises:
        CorpusError: higher inputs do not mean more matches.
    """
    require_extra("evaluate", "fitting a calibration", "sklearn")
    from sklearn.linear_model import LogisticRegression

    matches = int(sample.labels.sum())
    others = len(sample.labels) - matches
    targets = np.where(sample.labels == 1, (matches + 1) / (matches + 2), 1 / (others + 2))
    # A pair with a target between 0 and 1 counts twice, with part of its weight as each class.
    centre, width = float(sample.inputs.mean()), float(sample.inputs.std()) or 1.0
    standard = (np.tile(sample.inputs, 2)[:, None] - centre) / width
    model = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1_000)
    model.fit(
        standard,
        np.repeat([1, 0], len(targets)),
        np.concatenate([targets * sample.weights, (1 - targets) * sample.weights]),
    )
    slope = float(model.coef_[0, 0]) / width
    if not slope > 0:
        raise CorpusError("matches do not score higher than other pairs: nothing can be calibrated")
    return Logistic(slope, float(model.intercept_[0]) - slope * centre)


def fit_isotonic(sample: Sample) -> PiecewiseLinear:
    """Fit the best non-decreasing map, within the bounds of Platt's targets."""
    require_extra("evaluate", "fitting a calibration", "sklearn")
    from sklearn.isotonic import IsotonicRegression

    matches = int(sample.labels.sum())
    others = len(sample.labels) - matches
    model = IsotonicRegression(y_min=1 / (others + 2), y_max=(matches + 1) / (matches + 2))
    model.fit(sample.inputs, sample.labels, sample.weights)
    level = model.predict(sample.inputs)
    # Interpolate between the centres of the levels: no jumps, and no two scores become equal.
    probabilities, which = np.unique(level, return_inverse=True)
    sums = np.bincount(which, sample.weights * sample.inputs)
    inputs = sums / np.bincount(which, sample.weights)
    return PiecewiseLinear(tuple(inputs.tolist()), tuple(probabilities.tolist()))


def _cross_validate(sample: Sample, fit: Callable[[Sample], ProbabilityMap]) -> MapError:
    """Fit on all folds but one and measure on that one, for each fold."""
    predicted = np.empty(len(sample.labels))
    for fold in np.unique(sample.folds):
        left_out = sample.folds == fold
        fitted = fit(sample.rows(~left_out))
        predicted[left_out] = match_probabilities(fitted, sample.inputs[left_out])
    return measure_error(predicted, sample.labels, sample.weights)


def measure_error(probabilities: Float64, labels: Int64, weights: Float64) -> MapError:
    """Measure predicted probabilities Float64[N] against labels Int64[N]."""
    of_truth = np.where(labels == 1, probabilities, 1.0 - probabilities)
    losses = -np.log(np.maximum(of_truth, _SMALLEST))
    mass = equal_mass_bins(probabilities, weights)
    width = equal_width_bins(probabilities)
    return MapError(
        log_loss=float(weights @ losses / weights.sum()),
        equal_mass=expected_calibration_error(reliability(probabilities, labels, weights, mass)),
        equal_width=expected_calibration_error(reliability(probabilities, labels, weights, width)),
        equal_mass_of_perfect=error_of_perfect(probabilities, weights, mass).mean,
    )


def _check(pairs: ScoredPairs) -> None:
    name = pairs.fitted_on.name
    if not np.isfinite(pairs.scores).all():
        raise CorpusError(f"{name}: a score is not a finite number")
    if not np.isin(pairs.labels, (0, 1)).all():
        raise CorpusError(f"{name}: a label is neither 0 nor 1")
    matches = int(pairs.labels.sum())
    others = len(pairs.labels) - matches
    if min(matches, others) < MIN_OF_A_CLASS:
        raise CorpusError(
            f"{name}: {matches} pairs with label 1 and {others} with label 0; "
            f"at least {MIN_OF_A_CLASS} of each are needed"
        )


def score_labelled_pairs(
    pairs_file: Path,
    ids: tuple[str, ...],
    channels: Channels,
    rule: StandardRule | LinearFusion,
    progress: Progress,
    seed: int,
) -> dict[Mode, ScoredPairs]:
    """Score labelled pairs of a corpus of N documents in each mode, and random pairs too."""
    rows = find_pairs(read_pairs(pairs_file), ids)
    labels = rows.labels.astype(np.int64)
    name = f"{pairs_file.absolute().parent.name}/{pairs_file.name}"
    fitted_on = FittedOn(name, len(labels), int(labels.sum()), file_digest(pairs_file))
    labelled = np.stack([rows.sources, rows.targets], axis=1)
    measured = measure_channels(channels, rule, progress, seed=seed)
    scored = score_channels(channels, labelled, SilentProgress()).by_mode(measured.rule)
    return {
        mode: ScoredPairs(fitted_on, scores, labels, measured.by_mode[mode])
        for mode, scores in scored.items()
    }
