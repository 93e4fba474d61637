"""Count in how many texts each word is, for `encoder.terms.general_words`.

    python -m evaluation.fitting.general_words CORPUS [CORPUS]

The shipped counts are of 28,212 articles of the English and the Simple English Wikipedia of 640
words or more.
"""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import typer

from encoder.terms.general_words import UNLISTED, WORDS, level_of_share
from encoder.terms.segmentation import words_of
from index.corpus.reader import read_corpus
from index.document import Document


def main(
    corpus: Annotated[list[Path], typer.Argument(help="Corpora of general texts.")],
    output: Annotated[Path, typer.Option(help="The file to write.")] = WORDS,
) -> None:
    """Count, and write the words of the shares that have a level, the most frequent first."""
    having, number = Counter[str](), 0
    for path in corpus:
        for document in read_corpus(path):
            if isinstance(document, Document):
                having.update(set(words_of(document.text)))
                number += 1
    words = defaultdict(list)
    for word, count in having.items():
        words[level_of_share(count / number)].append(word)
    del words[UNLISTED]
    lines = (f"{level} {' '.join(sorted(words[level]))}\n" for level in sorted(words, reverse=True))
    output.write_text("".join(lines), encoding="utf-8")
    typer.echo(f"{output}: {sum(map(len, words.values())):,} words of {number:,} texts")


if __name__ == "__main__":
    typer.run(main)
