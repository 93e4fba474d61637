"""The names of linked documents are removed from texts, so that training cannot live on them."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

from encoder.sentences import split_sentences
from training.sources.linked_document import LinkedDocument
from training.sources.selection import unit_hash

MaskUnit = Literal["name", "sentence"]
Span = tuple[int, int]


def mask_names(
    document: LinkedDocument, linked: Collection[str], share: float, seed: int, unit: MaskUnit
) -> str:
    """Return the text of a document without the names of some documents that it is linked with.

    Args:
        document: with its mentions.
        linked: ids of those whose names may be removed.
        share: of the links; each is drawn by a hash of seed and ids, so that the draw of one does
            not depend on the others. All mentions of a drawn document are removed.
        seed: of the draws.
        unit: what is removed: the name, or the whole sentence.
    """
    drawn = {one for one in linked if unit_hash(f"mask {seed} {document.id} {one}") < share}
    spans = [(one.start, one.end) for one in document.mentions if one.target in drawn]
    if unit == "sentence" and spans:
        spans = list(_sentences_of(document.text, spans))
    return remove_spans(document.text, spans)


def remove_spans(text: str, spans: Sequence[Span]) -> str:
    """Return a text without some of its characters, and without the spaces that would be doubled.

    Args:
        text: any text.
        spans: (start, end) of characters, ascending, none overlapping.
    """
    pieces = []
    begin = 0
    for start, end in spans:
        pieces.append(text[begin:start])
        after_space = start == 0 or text[start - 1].isspace()
        while after_space and end < len(text) and text[end] in " \t":
            end += 1
        begin = end
    return "".join([*pieces, text[begin:]])


def cut_words(text: str, words: int | None) -> str:
    """Return the first words of a text, with their white space; all of it when None."""
    if words is None or len(text) <= words:
        return text
    end = 0
    rest = iter(text.split(maxsplit=words)[:words])
    for word in rest:
        end = text.index(word, end) + len(word)
    return text[:end]


def _sentences_of(text: str, spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the sentences that the spans, ascending, lie in; one over two sentences takes both."""
    sentences = list(split_sentences(text))
    starts = [start for start, _ in sentences]
    done = -1
    for start, end in spans:
        first = max(bisect_right(starts, start) - 1, done + 1, 0)
        for place in range(first, bisect_right(starts, end - 1)):
            yield sentences[place]
            done = place
