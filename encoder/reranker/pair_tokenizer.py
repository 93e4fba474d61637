"""From two texts to the tokens that the cross-encoder reads."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from encoder.arrays import Float32, Int64
from encoder.payload import blank_payload
from encoder.reranker.checkpoint import RerankerCheckpoint
from encoder.reranker.sentence_ranking import (
    SentenceGraphText,
    rank_sentences,
    split_for_ranking,
)
from encoder.sentences import replace_lone_surrogates
from encoder.tokenizer import open_tokenizer

FIRST, SEPARATOR, WORD, PADDING = 2, 1, 0, -1  # kinds of positions of a pair
SPECIAL_TOKENS = 3


@dataclass(frozen=True, slots=True)
class PairTokens:
    """The tokens of one pair, [CLS] a [SEP] b [SEP].

    Attributes:
        input_ids: Int64[T].
        token_types: Int64[T], 0 for the first text and 1 for the second.
        special: Int64[T], 2 for [CLS], 1 for [SEP] and 0 for a word.
    """

    input_ids: Int64
    token_types: Int64
    special: Int64

    def __len__(self) -> int:
        return len(self.input_ids)


class PairTokenizer:
    """Tokenises pairs of texts for a reranker. Safe to call from threads."""

    def __init__(self, checkpoint: RerankerCheckpoint) -> None:
        """Load the tokenizer."""
        self._tokenizer = open_tokenizer(checkpoint)
        self._shape = checkpoint.pair
        self._start, self._end = checkpoint.start_token, checkpoint.end_token

    def read(self, text: str) -> SentenceGraphText:
        """Split a text into sentences and words; a query is split once for all candidates."""
        readable, _ = blank_payload(replace_lone_surrogates(text))
        return split_for_ranking(
            readable, language=self._shape.language, most=self._shape.most_sentences
        )

    def pair(self, first: SentenceGraphText, second: SentenceGraphText) -> PairTokens:
        """Select sentences of both texts and join their tokens."""
        if self._shape.filtered:
            ranks = rank_sentences(first, second)
            a, b = (
                self._tokens(text, self._choose(text, ranked))
                for text, ranked in zip((first, second), ranks, strict=True)
            )
        else:
            a, b = (self._tokens(text, list(range(len(text.spans)))) for text in (first, second))
        room = self._shape.length - SPECIAL_TOKENS
        sizes = [sum(len(tokens) for _, tokens in side) for side in (a, b)]
        half = room // 2
        room_of_a = min(sizes[0], max(half, room - sizes[1]))
        ids_a, ids_b = _fill(a, room_of_a), _fill(b, room - room_of_a)
        return join_pair(ids_a, ids_b, self._start, self._end)

    def _choose(self, text: SentenceGraphText, ranks: Float32) -> list[int]:
        """Return the places of the sentences to read, the most important first."""
        lead = list(range(min(self._shape.lead_sentences, len(text.spans))))
        order = np.argsort(-ranks, kind="stable").tolist()  # of equal ones the earlier first
        best = [place for place in order if place not in lead]
        return [*lead, *best][: self._shape.sentences]

    def _tokens(
        self, text: SentenceGraphText, places: Sequence[int]
    ) -> list[tuple[int, list[int]]]:
        """Return the tokens of sentences, each with its place; no more than a pair can hold."""
        found: list[tuple[int, list[int]]] = []
        held, limit = 0, self._shape.sentence_tokens
        for start in range(0, len(places), self._shape.sentences):
            some = places[start : start + self._shape.sentences]
            encodings = self._tokenizer.encode_batch(
                [text.sentence(place) for place in some], add_special_tokens=False
            )
            for place, encoding in zip(some, encodings, strict=True):
                found.append((place, encoding.ids[:limit]))
                held += len(found[-1][1])
            if held >= self._shape.length:
                break
        return found


def join_pair(
    first: Sequence[int], second: Sequence[int], start_token: int, end_token: int
) -> PairTokens:
    """Join the tokens of two texts: [CLS] first [SEP] second [SEP]."""
    ids = [start_token, *first, end_token, *second, end_token]
    special = np.zeros(len(ids), dtype=np.int64)
    special[0] = FIRST
    special[[len(first) + 1, -1]] = SEPARATOR
    types = np.zeros(len(ids), dtype=np.int64)
    types[len(first) + 2 :] = 1
    return PairTokens(np.array(ids, dtype=np.int64), types, special)


def _fill(sentences: Sequence[tuple[int, list[int]]], room: int) -> list[int]:
    """Take sentences, the most important first, while there is room; return them in text order."""
    kept: list[tuple[int, list[int]]] = []
    for place, tokens in sentences:
        kept.append((place, tokens[:room]))
        room -= len(kept[-1][1])
    return [token for _, tokens in sorted(kept) for token in tokens]
