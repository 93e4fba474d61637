"""A corpus with planted copies, edits and concatenations, with known families.

Documents of a corpus that share a tenth of their runs of eight words with another are left out, so
that only planted documents are near-duplicates. Some of the rest are hosts, of each of which come a
copy, edits of 1, 5 and 20 per cent of the words (dropped, replaced or doubled up with others, all
over the text), one where a fifth of the sentences are those of other documents, and the host with
another document behind it, which belongs to the longer one of the two. Some of the others are cut:
their halves share topic and style, but no text, and are no family.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from encoder.sentences import split_sentences
from index.document import Document

COPY, CONCATENATED, PASSAGES, HALF, ORIGINAL = (
    "copy", "concatenation", "20 % in passages", "half", "original",
)  # fmt: skip
EDITS = {"1 % of words": 0.01, "5 % of words": 0.05, "20 % of words": 0.2}
PLANTED = (COPY, *EDITS, PASSAGES, CONCATENATED)
LEAST_WORDS = 200
MOST_WORDS = 1_500
_ROW = 8
_ALIKE = 0.1  # share of the rows of the shorter document that another has
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class PlantedDocument:
    """A document, how it was made, and its family by the id of the original."""

    document: Document
    kind: str
    family: str


def plant(documents: Sequence[Document], hosts: int, seed: int) -> list[PlantedDocument]:
    """Make a corpus, in a random order; as many documents are cut in halves as are hosts.

    Raises:
        ValueError: not enough documents without common text.
    """
    chance = random.Random(seed)
    originals = _strangers({document.id: _sentences(document.text) for document in documents})
    if len(originals) < 3 * hosts:
        raise ValueError(f"{len(originals)} documents are not enough for {hosts} hosts")
    names = chance.sample(sorted(originals), len(originals))
    planted = []
    for name in names[:hosts]:
        planted += _variants(name, originals, chance.choice(names[2 * hosts :]), chance)
    for name in names[hosts : 2 * hosts]:
        sentences = originals[name]
        middle = len(sentences) // 2
        for number, half in enumerate((sentences[:middle], sentences[middle:])):
            planted.append(_planted(f"{name} half {number}", HALF, half))
    planted += [_planted(name, ORIGINAL, originals[name]) for name in names[2 * hosts :]]
    planted += [_planted(name, ORIGINAL, originals[name]) for name in names[:hosts]]
    chance.shuffle(planted)
    return planted


def _variants(
    name: str, originals: Mapping[str, list[str]], other: str, chance: random.Random
) -> list[PlantedDocument]:
    sentences = originals[name]
    words = [word for sentences_of in originals.values() for word in " ".join(sentences_of).split()]
    longer = max((name, other), key=lambda name: len(" ".join(originals[name])))
    made = {COPY: sentences, PASSAGES: _with_passages(sentences, originals, chance)}
    made |= {kind: _edited(sentences, share, words, chance) for kind, share in EDITS.items()}
    variants = [_planted(f"{name} {kind}", kind, text, name) for kind, text in made.items()]
    both = [*sentences, *originals[other]]
    return [*variants, _planted(f"{name} + {other}", CONCATENATED, both, longer)]


def _planted(
    document_id: str, kind: str, sentences: Sequence[str], family: str = ""
) -> PlantedDocument:
    return PlantedDocument(Document(document_id, " ".join(sentences)), kind, family or document_id)


def _edited(
    sentences: Sequence[str], share: float, words: Sequence[str], chance: random.Random
) -> list[str]:
    def edit(match: re.Match[str]) -> str:
        if chance.random() >= share:
            return match[0]
        other = chance.choice(words)
        return chance.choice(["", other, f"{match[0]} {other}"])

    return [_WORD.sub(edit, sentence) for sentence in sentences]


def _with_passages(
    sentences: Sequence[str], originals: Mapping[str, list[str]], chance: random.Random
) -> list[str]:
    changed = list(sentences)
    remaining = 0.2 * len(" ".join(sentences))
    while remaining > 0:
        place = chance.randrange(len(changed))
        remaining -= len(changed[place])
        changed[place] = chance.choice(originals[chance.choice(sorted(originals))])
    return changed


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text, up to the one that brings it to `MOST_WORDS`."""
    kept: list[str] = []
    words = 0
    for start, end in split_sentences(text):
        if words >= MOST_WORDS:
            break
        kept.append(" ".join(text[start:end].split()))
        words += len(kept[-1].split())
    return kept if words >= LEAST_WORDS else []


def _strangers(texts: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return texts that have little in common with any earlier one."""
    kept: dict[str, list[str]] = {}
    rows: list[set[tuple[str, ...]]] = []
    for name, sentences in texts.items():
        words = _WORD.findall(" ".join(sentences).lower())
        runs = set(zip(*(words[first:] for first in range(_ROW)), strict=False))
        if not runs or any(len(runs & seen) > _ALIKE * min(len(runs), len(seen)) for seen in rows):
            continue
        kept[name] = sentences
        rows.append(runs)
    return kept
