"""Texts of any length that have next to no sentence block in common."""

import random

from benchmarks.bench_load import TextSource

PIECE_WORDS = (8, 25)  # less than a sentence block holds


class DistinctTexts(TextSource):
    """Texts pieced together out of a corpus, in pieces shorter than a sentence block.

    A server remembers the vectors of sentence blocks. Texts that are cut out of one small corpus
    again and again would soon be remembered whole, and cost next to nothing: their server could
    not be drowned by anything like real documents, which differ.
    """

    def draw(self, chance: random.Random) -> tuple[int, str]:
        """Draw a number of words, log-uniform, and a text of so many."""
        count = self.draw_length(chance)
        pieces: list[str] = []
        while len(pieces) < count:
            length = min(chance.randint(*PIECE_WORDS), count - len(pieces))
            start = chance.randrange(len(self.words) - length + 1)
            pieces += self.words[start : start + length]
        return count, "".join(pieces)
