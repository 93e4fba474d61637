"""Documents made of numbered paragraphs, so that tests know what they share."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from encoder.blocks import Receipt
from index.document import Document
from index.near_duplicates.signatures import band_keys, resemblances, sign
from index.sqlite.block_vectors import BlockVectors
from index.store.document_store import DocumentStore
from index.store.records import EncodedDocument

DIMENSION = 16
WORDS = 30  # of a paragraph, which is one sentence block


def text_of(paragraphs: Sequence[int]) -> str:
    return "\n\n".join(" ".join(f"p{number}w{n}" for n in range(WORDS)) for number in paragraphs)


def entry_of(
    document_id: str, paragraphs: Sequence[int], *, blocks: bool = True
) -> EncodedDocument:
    rows = np.stack([np.random.default_rng(number).normal(size=DIMENSION) for number in paragraphs])
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    mean, tokens = rows.mean(axis=0), WORDS * len(paragraphs)
    offsets = np.zeros((len(paragraphs), 2), dtype=np.int64)
    return EncodedDocument(
        Document(document_id, text_of(paragraphs)),
        mean / np.linalg.norm(mean),
        Receipt(tokens, tokens, len(paragraphs), 0, tokens),
        BlockVectors(offsets, rows) if blocks else None,
    )


def families_in(store: DocumentStore) -> set[frozenset[str]]:
    """Return the families of a store as sets of ids."""
    numbers = store.families.of_ids([document.id for document in store.listed("", 1000)])
    return {
        frozenset(name for name, family in numbers.items() if family == number)
        for number in numbers.values()
    }


def derived(store: DocumentStore) -> list[object]:
    """Return what the followers of a store answer of every document in it."""
    ids = store.log.added_after(0)[1].tolist()
    aligned = store.alignment.read(ids)
    blocks = {} if aligned is None else aligned.blocks
    words = {n: store.lexical.read_stored(n) for n in ids}
    explained = {n: store.lexical.explain(query, [n], 999)[n] for n, query in words.items()}
    return [
        [store.lexical.score(q, np.array(ids)).round(6).tolist() for q in words.values()],
        {n: {term.term for term in terms} for n, terms in explained.items()},
        *(store.families.of(ids), store.families.pending(), store.families.largest(99)),
        store.alignment.pending(),
        *(
            (vector_id, found.codes.tolist(), found.scales.tolist(), found.hubness.tolist())
            for vector_id, found in sorted(blocks.items())
        ),
    ]


def assert_rebuild_is_equal(store: DocumentStore) -> None:
    """Check that every follower answers the same after it was deleted and made again."""
    followed = derived(store)
    for follower in store.followers:
        follower.rebuild()
    assert derived(store) == followed


def expected_families(documents: Mapping[str, Sequence[int]]) -> set[frozenset[str]]:
    """Compare all documents with each other, and join what hangs together."""
    groups = [{name} for name in documents]
    for first, second in combinations(documents, 2):
        if are_near_duplicates(documents[first], documents[second]):
            joined = [group for group in groups if first in group or second in group]
            groups = [group for group in groups if group not in joined] + [set().union(*joined)]
    return {frozenset(group) for group in groups if len(group) > 1}


def are_near_duplicates(first: Sequence[int], second: Sequence[int]) -> bool:
    if list(first) == list(second):
        return True
    longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
    signatures = sign(text_of(first)), sign(text_of(second))
    if not set(band_keys(signatures[0])) & set(band_keys(signatures[1])):
        return False
    [resemblance] = resemblances(signatures[0], [signatures[1]]).tolist()
    return resemblance >= 0.2 and np.mean([part in shorter for part in longer]) > 0.5
