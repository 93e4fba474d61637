"""The expected calibration error (ECE) of predicted probabilities, and reliability diagrams.

ECE = sum over bins of (share of pairs in the bin) |mean probability - share of matches|
(Guo et al. 2017, equation 3, with bins of equal width). With few pairs it is not 0 even if every
probability is right: `error_of_perfect` estimates how large it is then.

scikit-learn's `calibration_curve` has neither weights, nor bins of equal mass with ties, nor the
error itself, so these few lines of NumPy stay.
"""

from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float64, Int64

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
    return sum(one.share * abs(one.probability - one.matches) for one in bins)


def error_of_perfect(
    probabilities: Float64, weights: Float64, numbers: Int64, *, seed: int = 0
) -> PerfectError:
    """Simulate the expected calibration error of probabilities that are all right.

    Args:
        probabilities: Float64[N].
        weights: Float64[N].
        numbers: Int64[N], the bins.
        seed: of the simulated labels.
    """
    random = np.random.default_rng(seed)
    count = int(numbers.max()) + 1
    errors = np.empty(_SIMULATIONS)
    for number in range(_SIMULATIONS):
        labels = random.random(len(probabilities)) < probabilities
        gaps = np.bincount(numbers, weights * (probabilities - labels), minlength=count)
        errors[number] = np.abs(gaps).sum() / weights.sum()
    return PerfectError(float(errors.mean()), float(np.quantile(errors, 0.95)))
