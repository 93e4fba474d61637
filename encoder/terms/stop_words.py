"""English words that say little about the subject of a text."""

from pathlib import Path

STOP_WORDS = frozenset(Path(__file__).with_name("stop_words.txt").read_text("ascii").split())
