"""Which documents and links of a source become a corpus, and the splits.

A link never crosses the splits: the part of a document is chosen by a hash of its text or of its
group, and a link between two parts is left out.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evaluation.judgements import PARTS
from training.sources.linked_document import LinkedDocument

Link = tuple[str, str]  # two ids, the smaller one first


@dataclass(frozen=True, slots=True)
class CorpusOptions:
    """How a corpus is made of a source.

    Attributes:
        documents: how many to keep, at most: those with the most links among each other. All that
            have a link when None.
        min_words: shorter documents are left out.
        max_words: longer texts are cut; None for no limit.
        max_named: a document that more than this many others link to is no target of links.
        mask_titles: the share of a document's links whose names are removed from its text.
        held_out: the share of documents for validation, and as many for testing.
        seed: of splits and masks.
    """

    documents: int | None = None
    min_words: int = 300
    max_words: int | None = None
    max_named: int = 50
    mask_titles: float = 0.5
    held_out: float = 0.05
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents of a corpus, with what was left out.

    Attributes:
        documents: in the order of the source; each has a link.
        parts: train, valid or test, by id.
        links: between documents of one part.
        left_out: how many documents and links were left out, by reason.
    """

    documents: tuple[LinkedDocument, ...]
    parts: Mapping[str, str]
    links: frozenset[Link]
    left_out: Mapping[str, int]


def select(documents: Sequence[LinkedDocument], options: CorpusOptions) -> Selection:
    """Choose the documents and links of a corpus; `options.mask_titles` is not used."""
    left_out: Counter[str] = Counter()
    known = {one.id: one for one in _usable(documents, options.min_words, left_out)}
    parts = choose_parts(list(known.values()), options.held_out, options.seed)
    links: set[Link] = set()
    for source, target in _links(known, options.max_named, left_out):
        if parts[source] == parts[target]:
            links.add((min(source, target), max(source, target)))
        else:
            left_out["links across splits"] += 1
    kept = _most_linked(parts, links, options)
    left_out["documents without a link"] = len(known.keys() - {end for one in links for end in one})
    left_out["documents with few links"] = (
        len(known) - len(kept) - left_out["documents without a link"]
    )
    return Selection(
        tuple(one for name, one in known.items() if name in kept),
        {name: parts[name] for name in known if name in kept},
        frozenset(link for link in links if kept.issuperset(link)),
        left_out,
    )


def without(selection: Selection, removed: Iterable[str], reason: str) -> Selection:
    """Return a selection without some documents, and without those that then have no link."""
    gone = set(removed)
    links = frozenset(link for link in selection.links if gone.isdisjoint(link))
    linked = {end for link in links for end in link}
    left_out = Counter(selection.left_out)
    left_out[reason] += len(gone)
    left_out["documents without a link"] += len(selection.parts.keys() - linked - gone)
    return Selection(
        tuple(one for one in selection.documents if one.id in linked),
        {name: part for name, part in selection.parts.items() if name in linked},
        links,
        left_out,
    )


def choose_parts(documents: Sequence[LinkedDocument], held_out: float, seed: int) -> dict[str, str]:
    """Return the part of each document.

    Of the groups, or else the texts, the share whose seeded hashes come first is for validation,
    and the next is for testing. Groups are ignored if there are fewer than 2 / `held_out` of them:
    one alone would be a whole part.
    """
    grouped = len({one.group for one in documents}) * held_out >= 2
    keys = {one.id: one.group if grouped and one.group else one.text for one in documents}
    order = sorted(set(keys.values()), key=lambda key: unit_hash(f"split {seed} {key}"))
    number = round(held_out * len(order))
    train, valid, test = PARTS
    part_of = dict.fromkeys(order[:number], valid) | dict.fromkeys(order[number : 2 * number], test)
    return {name: part_of.get(key, train) for name, key in keys.items()}


def unit_hash(key: str) -> float:
    """Return a number in [0, 1) that depends on the key alone."""
    digest = hashlib.blake2b(key.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _usable(
    documents: Sequence[LinkedDocument], min_words: int, left_out: Counter[str]
) -> Iterable[LinkedDocument]:
    """Yield documents that are long enough, the first of equal texts."""
    seen: set[str] = set()
    for one in documents:
        if len(one.text.split()) < min_words:
            left_out["documents too short"] += 1
        elif one.text in seen:
            left_out["documents repeated"] += 1
        else:
            seen.add(one.text)
            yield one


def _links(
    known: Mapping[str, LinkedDocument], max_named: int, left_out: Counter[str]
) -> list[Link]:
    """Return (source, target) of each link between known documents, without popular targets."""
    found = [
        (one.id, target)
        for one in known.values()
        for target in sorted(one.links & known.keys() - {one.id})
    ]
    named = Counter(target for _, target in found)
    kept = [link for link in found if named[link[1]] <= max_named]
    left_out["targets named too often"] = sum(count > max_named for count in named.values())
    left_out["links to these targets"] = len(found) - len(kept)
    return kept


def _most_linked(
    parts: Mapping[str, str], links: Iterable[Link], options: CorpusOptions
) -> set[str]:
    """Return documents with links, of each part its share of the number to keep."""
    near: dict[str, set[str]] = {}
    for a, b in links:
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    if options.documents is None:
        return set(near)
    held_out = round(options.documents * options.held_out)
    room = dict.fromkeys(PARTS, held_out) | {"train": options.documents - 2 * held_out}
    kept: set[str] = set()
    for part, most in room.items():
        kept |= _peel({name: near[name] for name in near if parts[name] == part}, most)
    return kept


def _peel(near: Mapping[str, set[str]], most: int) -> set[str]:
    """Remove the document with the fewest links among those that remain, until `most` remain.

    Documents without a link are removed in any case.
    """
    counts = {name: len(others) for name, others in near.items()}
    queue = [(count, name) for name, count in counts.items()]
    heapq.heapify(queue)
    while queue and (len(counts) > most or queue[0][0] == 0):
        count, name = heapq.heappop(queue)
        if counts.get(name) != count:
            continue  # an entry from before it lost a link
        del counts[name]
        for other in near[name] & counts.keys():
            counts[other] -= 1
            heapq.heappush(queue, (counts[other], other))
    return set(counts)
