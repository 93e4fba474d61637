"""Fit the maps from score to match probability on labelled pairs, with scikit-learn."""

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
from evaluation.calibration_error import (
    equal_mass_bins,
    equal_width_bins,
    error_of_perfect,
    expected_calibration_error,
    reliability,
)
from evaluation.judgements import find_pairs, read_pairs
from index.errors import CorpusError
from index.optional_packages import require_extra
from index.progress import Progress, SilentProgress
from index.search.records import Mode
from index.search.score_distribution import (
    Channels,
    NullDistribution,
    false_positive_rates,
    measure_modes,
    mode_scores,
)

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
    """Fit both maps on the pairs of several corpora, each corpus with the same weight.

    The error is measured by cross-validation. With several corpora a fold is a whole corpus, since
    users bring a corpus that the maps were not fitted on; a single one is divided at random.

    Raises:
        CorpusError: a score is not finite, a label is neither 0 nor 1, or there are fewer than
            `MIN_OF_A_CLASS` of a class (names the pairs); or higher scores do not mean more
            matches.
        MissingExtraError: scikit-learn is not installed.
    """
    for one in corpora:
        _check(one)
    counts = [len(one.labels) for one in corpora]
    labels = np.concatenate([one.labels for one in corpora])
    weights = np.repeat([len(labels) / len(corpora) / count for count in counts], counts)
    folds = np.repeat(np.arange(len(corpora)), counts)
    if len(corpora) == 1:
        folds = np.random.default_rng(seed).permutation(len(labels)) % FOLDS
    scores = np.concatenate([one.scores for one in corpora])
    odds = np.concatenate(
        [log_odds(false_positive_rates(one.random_pairs, one.scores)) for one in corpora]
    )
    return KindCalibration(
        by_score=fit_map(Sample(scores, labels, weights, folds)),
        by_false_positive_rate=fit_map(Sample(odds, labels, weights, folds)),
        fitted_on=tuple(one.fitted_on for one in corpora),
    )


def fit_map(sample: Sample) -> FittedMap:
    """Fit a map by each method and keep the one of the lower cross-validated log loss.

    Raises:
        CorpusError: higher inputs do not mean more matches.
        MissingExtraError: scikit-learn is not installed.
    """
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
        MissingExtraError: scikit-learn is not installed.
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
    """Fit the best non-decreasing map, within the bounds of Platt's targets.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
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
    pairs_file: Path, ids: tuple[str, ...], channels: Channels, progress: Progress, seed: int
) -> dict[Mode, ScoredPairs]:
    """Score labelled pairs of a corpus of N documents in each mode, and random pairs too.

    Args:
        pairs_file: the labelled pairs.
        ids: N ids of the documents.
        channels: scores of the documents.
        progress: notified of progress.
        seed: of the random pairs.

    Raises:
        CorpusError: the pairs cannot be read, one of their documents is missing, or the corpus is
            too small.
    """
    rows = find_pairs(read_pairs(pairs_file), ids)
    labels = rows.labels.astype(np.int64)
    name = f"{pairs_file.absolute().parent.name}/{pairs_file.name}"
    fitted_on = FittedOn(name, len(labels), int(labels.sum()), file_digest(pairs_file))
    labelled = np.stack([rows.sources, rows.targets], axis=1)
    measured = measure_modes(channels, progress, seed=seed)
    scored = mode_scores(channels, labelled, SilentProgress())
    return {
        mode: ScoredPairs(fitted_on, scores, labels, measured[mode])
        for mode, scores in scored.items()
    }
