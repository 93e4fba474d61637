"""MinHash signatures of texts, which find texts that share many word shingles.

A signature is a MinHash of the shingles of three words (Broder, "On the resemblance and containment
of documents", 1997): the share of equal positions in two signatures estimates the Jaccard
resemblance of the texts. It is cut into bands of two positions; two texts of resemblance s have at
least one band in common with probability 1 - (1 - s^2)^32: 0.95 at 0.3, and 0.003 at 0.01.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from rensa import RMinHash

from encoder.arrays import Float32, UInt32, UInt64
from encoder.terms.title_matcher import hash_runs
from index.common_text.runs import NO_COMMON_TEXT, CommonText
from index.lexical.terms import hash_words, words_without_common

FEWEST_WORDS = 50  # a shorter text can have copies, but no near-duplicates
BANDS = 32
_ROW = 3
_PLACES = 128
_SEED = 1
_BASE = np.uint64(0x9E3779B97F4A7C15)


def sign(text: str, common: CommonText = NO_COMMON_TEXT) -> UInt32:
    """Return the signature of a text without common text, UInt32[P]; empty if it is too short."""
    words = words_without_common(text, common)
    if len(words) < FEWEST_WORDS:
        return np.zeros(0, dtype=np.uint32)
    return _min_hash(hash_runs(hash_words(words), _ROW))


def band_keys(signature: UInt32) -> list[int]:
    """Return the key of each band of a signature; none for an empty one."""
    if not len(signature):
        return []
    pairs = signature[: 2 * BANDS].reshape(BANDS, 2).astype(np.uint64)
    numbers = np.arange(1, BANDS + 1, dtype=np.uint64)
    keys = ((numbers * _BASE) ^ pairs[:, 0]) * _BASE ^ pairs[:, 1]
    found: list[int] = (keys * _BASE).view(np.int64).tolist()
    return found


def resemblances(signature: UInt32, others: Sequence[UInt32]) -> Float32:
    """Estimate the resemblance of a text to others from their signatures: Float32[N]."""
    equal = np.stack(others) == signature
    found: Float32 = equal.mean(axis=1, dtype=np.float32)
    return found


@cache
def signing_rule() -> str:
    """Return what determines signatures, as a text: only those of one rule can be compared.

    It contains signatures of known shingles, so that a change in the library is noticed.
    """
    rows = np.arange(20_000, dtype=np.uint64) * _BASE
    known = [_min_hash(rows[:count]).tobytes().hex()[:16] for count in (40, 2_000, 20_000)]
    return " ".join([f"{_ROW} words, {_PLACES} places, {BANDS} bands", *known])


def unpack(signature: bytes) -> UInt32:
    """Read a stored signature.

    Raises:
        ValueError: it is damaged.
    """
    if not isinstance(signature, bytes) or len(signature) not in (0, 4 * _PLACES):
        raise ValueError("the signature of a text is damaged")
    return np.frombuffer(signature, dtype="<u4")


def pack(signature: UInt32) -> bytes:
    """Return the stored bytes of a signature."""
    return signature.astype("<u4").tobytes()


def _min_hash(rows: UInt64) -> UInt32:
    matrix = RMinHash.digest_matrix_from_flat_token_hashes(rows, [0, len(rows)], _PLACES, _SEED)
    return np.array(matrix.to_rows()[0], dtype=np.uint32)
