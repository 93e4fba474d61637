"""The thresholds of alignment, fitted by `python -m benchmarks.fit_alignment`."""

from dataclasses import dataclass

from encoder.block_runs import Background

_OF_SHORT_TEXTS = Background(centre=0.173, spread=0.193)


@dataclass(frozen=True, slots=True)
class AlignmentRule:
    """When passages match and what two texts have to do with each other.

    Attributes:
        shingle: words in a row that make an exact match.
        sentence_cosine: of the weighted words of two sentences that say the same.
        sentence_shared: different words that they share.
        gap: words between two matches, on both sides, that one passage bridges.
        least_words: words of a passage, on the shorter side.
        verbatim_share: words of a passage that are in exact matches, from which it is verbatim.
        deviations: how far over the background of the two texts two blocks match.
        least_cosine: of two blocks that match, whatever the background.
        paraphrase_cosine: of a run of blocks, from which it is a paraphrase and not only similar.
        background: of texts that are too short to have one of their own.
        copied_share: of the larger coverage, from which texts are near copies or paraphrases.
        topic_score: of two document vectors, from which texts are of the same topic.
    """

    shingle: int = 10
    sentence_cosine: float = 0.45
    sentence_shared: int = 3
    gap: int = 30
    least_words: int = 10
    verbatim_share: float = 0.85
    deviations: float = 2.75
    least_cosine: float = 0.65
    paraphrase_cosine: float = 0.85
    background: Background = _OF_SHORT_TEXTS
    copied_share: float = 0.4
    topic_score: float = 0.45


ALIGNMENT_RULE = AlignmentRule()
