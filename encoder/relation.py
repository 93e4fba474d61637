"""What kind of relation two texts have, and the figures that speak for it."""

from encoder.alignment import Alignment, Covered
from encoder.alignment_rule import AlignmentRule
from encoder.comparison import AlignedPassage, Relation
from encoder.read_text import ReadText
from encoder.words import word_range

_NAMES = {"verbatim": "word for word", "paraphrase": "in other words", "similar": "similar"}


def judge_relation(
    left: ReadText, right: ReadText, score: float, alignment: Alignment, rule: AlignmentRule
) -> Relation:
    """Name the relation of two texts.

    Identical: the same but for white space. Near-copy and paraphrase: passages cover at least
    `rule.copied_share` of one of them, more than half of that word for word, or less. Same topic:
    the document vectors reach `rule.topic_score`. Unrelated: the rest.
    """
    if left.text == right.text or left.text.split() == right.text.split():
        return "identical"
    more = max(alignment.left, alignment.right)
    if more.all >= rule.copied_share:
        return "near-copy" if more.verbatim > more.all / 2 else "paraphrase"
    return "same topic" if score >= rule.topic_score else "unrelated"


def gather_evidence(
    left: ReadText, right: ReadText, score: float, alignment: Alignment, rule: AlignmentRule
) -> tuple[str, ...]:
    """Say what the relation rests on, a sentence for each figure."""
    side = "reach" if score >= rule.topic_score else "stay under"
    found = [
        f"The document vectors have a cosine of {score:.2f} and {side} the "
        f"{rule.topic_score:.2f} of texts of the same topic."
    ]
    if left.text.split() == right.text.split():
        return ("The texts are the same but for white space.", *found)
    passages = alignment.passages
    shared = [one for one in passages if one.kind != "similar"]
    if shared:
        found.insert(0, _longest(left, shared))
        found.insert(0, _coverage(alignment.left, alignment.right, len(shared)))
    else:
        found.insert(0, "No passage of one text was found in the other.")
    similar = len(passages) - len(shared)
    if similar:
        best = max(one.score for one in passages if one.kind == "similar")
        runs = "passage is" if similar == 1 else "passages are"
        found.append(
            f"{similar} {runs} similar in what is said but not in words, with a cosine of up to "
            f"{best:.2f}."
        )
    return tuple(found)


def _coverage(left: Covered, right: Covered, passages: int) -> str:
    count = "1 passage covers" if passages == 1 else f"{passages} passages cover"
    return (
        f"{count} {_percent(left.all)} of the left text ({_percent(left.verbatim)} word for "
        f"word) and {_percent(right.all)} of the right text ({_percent(right.verbatim)})."
    )


def _longest(left: ReadText, passages: list[AlignedPassage]) -> str:
    words = {one: _words(left, one) for one in passages}
    longest = max(passages, key=words.__getitem__)
    return f"The longest passage has {words[longest]} words and is shared {_NAMES[longest.kind]}."


def _words(read: ReadText, passage: AlignedPassage) -> int:
    first, last = word_range(read.words, *passage.left)
    return last - first


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %" if share < 0.995 or share == 1 else f"{100 * share:.1f} %"
