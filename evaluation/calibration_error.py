"""How far stated probabilities are from what happens: the expected calibration error.

ECE = sum over bins of (share of pairs in the bin) |mean probability - share of matches|
(Guo et al. 2017, equation 3; there with bins of equal width). Of few pairs it is not 0 even where
every probability is right: `error_of_perfect` says how large it is then.
"""

from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float64, Int64

BINS = 10  # of Naeini et al. 2015; with more, a few hundred pairs measure mostly chance
_SIMULATIONS = 500


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Pairs of similar probability.

    Attributes:
        share: of all pairs, by weight.
        probability: the mean that was stated.
        matches: share of them that are matches.
        pairs: how many.
    """

    share: float
    probability: float
    matches: float
    pairs: int


@dataclass(frozen=True, slots=True)
class PerfectError:
    """The calibration error that right probabilities would show on so many pairs.

    Attributes:
        mean: on average.
        high: in 95 of 100 samples it is no larger.
    """

    mean: float
    high: float


def equal_mass_bins(probabilities: Float64, weights: Float64, bins: int = BINS) -> Int64:
    """Number the bin of each pair, Int64[N], so that bins hold the same weight.

    Equal probabilities stay in one bin.
    """
    order = np.argsort(probabilities, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    numbers = np.empty(len(order), dtype=np.int64)
    numbers[order] = np.minimum(before / weights.sum() * bins, bins - 1).astype(np.int64)
    _, first, which = np.unique(probabilities[order], return_index=True, return_inverse=True)
    numbers[order] = numbers[order][first[which]]
    return numbers


def equal_width_bins(probabilities: Float64, bins: int = BINS) -> Int64:
    """Number the bin of each pair, Int64[N], so that bins are as wide as each other."""
    return np.minimum(probabilities * bins, bins - 1).astype(np.int64)


def reliability(
    probabilities: Float64, labels: Int64, weights: Float64, numbers: Int64
) -> tuple[ReliabilityBin, ...]:
    """Compare probabilities Float64[N] with labels Int64[N] in the bins Int64[N]; empty ones go."""
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
    """Simulate the expected calibration error if each probability were right.

    Args:
        probabilities: Float64[N].
        weights: Float64[N].
        numbers: Int64[N], the bins.
        seed: of the labels that are drawn.
    """
    random = np.random.default_rng(seed)
    count = int(numbers.max()) + 1
    errors = np.empty(_SIMULATIONS)
    for draw in range(_SIMULATIONS):
        labels = random.random(len(probabilities)) < probabilities
        gaps = np.bincount(numbers, weights * (probabilities - labels), minlength=count)
        errors[draw] = np.abs(gaps).sum() / weights.sum()
    return PerfectError(float(errors.mean()), float(np.quantile(errors, 0.95)))
