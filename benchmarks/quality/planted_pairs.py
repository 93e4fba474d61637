"""Pairs of texts with known shared passages: planted, copied or reworded.

    python -m benchmarks.quality.planted_pairs --pairs 40 --output pairs.jsonl

A pair is made of two documents of a corpus that share no run of eight words and are not of the same
package (`email.charset` and `email.header` are). Passages of the left
one, whole sentences, are put between sentences of the right one, as they are or reworded by rule,
until they are 1, 5, 20 or 50 per cent of it. The other pairs: a text with itself, with typing
errors, completely reworded; two halves of one document; two documents as they are.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.common import read_documents
from benchmarks.quality.paraphrases import Strength, edit_lightly, paraphrase
from encoder.comparison.result import Relation, Span
from encoder.comparison.words import locate_words
from encoder.sentences import split_sentences
from index.document import Document

SHARES = (0.01, 0.05, 0.2, 0.5)
STRENGTHS: tuple[Strength | None, ...] = (None, "light", "medium", "strong")
WHOLE = ("identical", "slips", "light", "medium", "strong", "halves", "unrelated")
LEAST_WORDS = 600
MOST_WORDS = 1_600
_COPIED_FROM = 0.5  # share of a text from which a pair is a near-copy or a paraphrase
_SHINGLE = 8


@dataclass(frozen=True, slots=True)
class PlantedPair:
    """Two texts and their known relation.

    Attributes:
        kind: "copied", "light", "medium" or "strong" for planted passages, else one of `WHOLE`.
        share: of the right text that was planted; 0 where nothing was.
        shuffled: whether the passages stand in another order.
        left: one text.
        right: the other.
        left_spans: characters of the left text that the right one has, too.
        right_spans: where they are there.
        relation: of the two.
    """

    kind: str
    share: float
    shuffled: bool
    left: str
    right: str
    left_spans: tuple[Span, ...]
    right_spans: tuple[Span, ...]
    relation: Relation


@dataclass(frozen=True, slots=True)
class _Host:
    """A document as its sentences, and its rows of words."""

    package: str
    sentences: tuple[str, ...]
    shingles: frozenset[tuple[int, ...]]

    @property
    def text(self) -> str:
        return _joined(self.sentences)[0]


def make_pairs(documents: Sequence[Document], count: int, seed: int) -> list[PlantedPair]:
    """Make pairs, of all kinds in turn: one in three is of whole documents.

    Raises:
        ValueError: the documents give no two hosts that share nothing.
    """
    chance = random.Random(seed)
    hosts = [host for document in documents if (host := _host(document))]
    planted = [
        (share, strength, turn)
        for turn in (False, True)
        for share in SHARES
        for strength in STRENGTHS
    ]
    pairs = []
    for number in range(count):
        left, right = _strangers(hosts, chance)
        turn, kind = divmod(number, 3)
        if kind == 2:
            pairs.append(_whole(WHOLE[turn % len(WHOLE)], left, right, chance))
        else:
            share, strength, shuffled = planted[(2 * turn + kind) % len(planted)]
            pairs.append(_planted(left, right, share, strength, shuffled, chance))
    return pairs


def _host(document: Document) -> _Host | None:
    """Return a document cut after the sentence that brings it to `MOST_WORDS`, if it is one."""
    sentences: list[str] = []
    words = 0
    for start, end in split_sentences(document.text):
        sentence = " ".join(document.text[start:end].split())
        sentences.append(sentence)
        words += len(sentence.split())
        if words >= MOST_WORDS:
            break
    if words < LEAST_WORDS:
        return None
    return _Host(document.id.partition(".")[0], tuple(sentences), _rows(" ".join(sentences)))


def _strangers(hosts: Sequence[_Host], chance: random.Random) -> tuple[_Host, _Host]:
    for _ in range(200):
        left, right = chance.sample(hosts, 2) if len(hosts) > 1 else (hosts[0], hosts[0])
        if left.package != right.package and not left.shingles & right.shingles:
            return left, right
    raise ValueError(f"{len(hosts)} long enough documents give no pair that shares no words")


def _planted(
    left: _Host,
    right: _Host,
    share: float,
    strength: Strength | None,
    shuffled: bool,
    chance: random.Random,
) -> PlantedPair:
    """Put passages of one document into another until they are `share` of its words."""
    lengths = [len(sentence.split()) for sentence in left.sentences]
    host = _cut(right.sentences, sum(lengths))
    word_count = share / (1 - share) * sum(len(sentence.split()) for sentence in host)
    source = _passages(lengths, word_count, chance)
    passages = [list(left.sentences[first:last]) for first, last in source]
    reworded = [paraphrase(one, strength, chance) if strength else one for one in passages]
    if shuffled:
        chance.shuffle(reworded[0] if len(reworded) == 1 else reworded)
    pieces = _put_in(host, reworded, chance)
    text, spans = _joined([one for one, _ in pieces])
    left_text, left_spans = _joined(left.sentences)
    return PlantedPair(
        kind=strength or "copied",
        share=share,
        shuffled=shuffled,
        left=left_text,
        right=text,
        left_spans=tuple(left_spans[number] for number in _repeats(left.sentences, source)),
        right_spans=tuple(span for span, (_, new) in zip(spans, pieces, strict=True) if new),
        relation=_planted_relation(share, strength),
    )


def _put_in(
    host: Sequence[str], passages: Sequence[Sequence[str]], chance: random.Random
) -> list[tuple[str, bool]]:
    """Return all sentences, and for each whether it was inserted into the host."""
    places = sorted(chance.sample(range(len(host) + 1), min(len(passages), len(host) + 1)))
    pieces: list[tuple[str, bool]] = []
    for number in range(len(host) + 1):
        if number in places:
            pieces += [(one, True) for one in passages[places.index(number)]]
        pieces += [(one, False) for one in host[number : number + 1]]
    return pieces


def _repeats(sentences: Sequence[str], source: Sequence[tuple[int, int]]) -> list[int]:
    """Return the numbers of the sentences of the source, and of those that say them once more."""
    inside = {number for first, last in source for number in range(first, last)}
    planted = {row for first, last in source for row in _rows(" ".join(sentences[first:last]))}
    same = {sentences[number] for number in inside}
    return [
        number
        for number, sentence in enumerate(sentences)
        if number in inside or sentence in same or planted & _rows(sentence)
    ]


def _rows(text: str) -> frozenset[tuple[int, ...]]:
    """Return the rows of `_SHINGLE` words of a text."""
    codes = locate_words(text).codes.tolist()
    return frozenset(zip(*(codes[word:] for word in range(_SHINGLE)), strict=False))


def _cut(sentences: Sequence[str], words: int) -> list[str]:
    """Return the first sentences, of about so many words: neither text is much the longer."""
    kept: list[str] = []
    for sentence in sentences:
        words -= len(sentence.split())
        if words < 0 and kept:
            break
        kept.append(sentence)
    return kept


def _planted_relation(share: float, strength: Strength | None) -> Relation:
    if share < _COPIED_FROM:
        return "unrelated"
    return "paraphrase" if strength else "near-copy"


def _passages(
    words: Sequence[int], word_count: float, chance: random.Random
) -> list[tuple[int, int]]:
    """Choose up to four passages of whole sentences, apart from each other, of so many words."""
    count = min(4, max(1, int(word_count // 150)))
    step = len(words) // count
    found = []
    for number in range(count):
        end = (number + 1) * step - (number + 1 < count)
        last = first = number * step + (
            chance.randrange(max(1, step // 4)) if word_count < sum(words) / 2 else 0
        )
        size = 0
        while last == first or (last < end and size < word_count / count):
            size += words[last]
            last += 1
        found.append((first, last))
    return found


def _whole(kind: str, left: _Host, right: _Host, chance: random.Random) -> PlantedPair:
    text = left.text
    for strength in STRENGTHS:
        if strength and kind == strength:
            sentences = paraphrase(left.sentences, strength, chance)
            return _all_shared(kind, text, _joined(sentences)[0], "paraphrase")
    match kind:
        case "identical":
            return _all_shared(kind, text, text, "identical")
        case "slips":
            return _all_shared(kind, text, edit_lightly(text, chance), "near-copy")
        case "halves":
            middle = len(left.sentences) // 2
            halves = (_joined(left.sentences[:middle])[0], _joined(left.sentences[middle:])[0])
            return PlantedPair(kind, 0.0, False, *halves, (), (), "same topic")
    return PlantedPair(kind, 0.0, False, text, right.text, (), (), "unrelated")


def _all_shared(kind: str, left: str, right: str, relation: Relation) -> PlantedPair:
    spans = ((Span(0, len(left)),), (Span(0, len(right)),))
    return PlantedPair(kind, 1.0, False, left, right, *spans, relation)


def _joined(sentences: Sequence[str]) -> tuple[str, list[Span]]:
    """Return the sentences as a text, a paragraph each five, and the place of each."""
    pieces: list[str] = []
    spans = []
    length = 0
    for number, sentence in enumerate(sentences):
        separator = "" if not number else "\n\n" if number % 5 == 0 else " "
        length += len(separator)
        spans.append(Span(length, length + len(sentence)))
        length += len(sentence)
        pieces += [separator, sentence]
    return "".join(pieces), spans


def main(
    output: Annotated[Path, typer.Option(help="The JSON Lines file to write.")],
    corpus: Annotated[Path | None, typer.Option(help="Python's documentation by default.")] = None,
    documents: Annotated[int, typer.Option(help="Documents sampled from the corpus.")] = 60,
    pairs: Annotated[int, typer.Option(help="Pairs to make.")] = 40,
    seed: int = 1,
) -> None:
    """Write labelled pairs as JSON Lines."""
    made = make_pairs(read_documents(corpus, documents), pairs, seed)
    with output.open("w", encoding="utf-8") as stream:
        for pair in made:
            stream.write(json.dumps(asdict(pair), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    typer.run(main)
