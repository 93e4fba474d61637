"""Words that say little about the subject of a text: English ones, and Chinese ones."""

from pathlib import Path


def _read(name: str) -> frozenset[str]:
    return frozenset(Path(__file__).with_name(name).read_text("utf-8").split())


STOP_WORDS = _read("stop_words.txt")
CHINESE_STOP_WORDS = _read("stop_words_zh.txt")  # particles and the like, in both scripts
