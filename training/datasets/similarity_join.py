"""All pairs of sets whose Jaccard similarity is over a threshold, found by prefixes.

Two sets can only be so similar if one of the rarest elements of each is common to both; these
prefixes are enough to find all pairs (Bayardo et al., "Scaling up all pairs similarity search",
2007; Xiao et al., "Efficient similarity joins for near duplicate detection", 2008).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence


def similar_sets(
    sets: Mapping[str, frozenset[str]], over: float
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name with the names of earlier sets whose Jaccard similarity is over `over`.

    Args:
        sets: by name; an empty one is similar to none.
        over: at least 0 and below 1.
    """
    counts = Counter(element for one in sets.values() for element in one)
    having: dict[str, list[str]] = defaultdict(list)
    for name in sorted(sets, key=lambda name: (len(sets[name]), name)):
        one = sets[name]
        candidates: dict[str, None] = {}
        for element in _prefix(one, counts, over):
            candidates.update(dict.fromkeys(having[element]))
            having[element].append(name)
        yield name, tuple(other for other in candidates if jaccard(one, sets[other]) > over)


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return |both| / |either|; 0 for two empty sets."""
    both = len(one & other)
    either = len(one) + len(other) - both
    return both / either if either else 0.0


def _prefix(one: frozenset[str], counts: Mapping[str, int], over: float) -> Sequence[str]:
    """Return the rarest elements of a set: so many that the others alone are not enough."""
    order = sorted(one, key=lambda element: (counts[element], element))
    return order[: len(order) - math.ceil(over * len(order)) + 1]
