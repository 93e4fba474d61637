"""Titles that are right: `python -m benchmarks.quality.titles FOLDER` with the listed files."""

import sys
from pathlib import Path

from index.corpus.formats.files import read_file_text

if __name__ == "__main__":
    lines = Path("docs/results/titles.tsv").read_text().splitlines()
    expected = dict(line.split("\t") for line in lines)
    found = {name: read_file_text(Path(sys.argv[1], name)).title for name in expected}
    wrong = [name for name in expected if found[name].casefold() != expected[name].casefold()]
    print(*(f"{name}: {found[name]}" for name in wrong), sep="\n")
    print(f"{len(expected) - len(wrong)} of {len(expected)}")
