"""A data directory of topics that only words tell apart, with feedback and rules for it."""

import json
import random
import shutil
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from encoder.checkpoint import load_checkpoint, vector_space
from index.search.score import CorpusFusion, LinearFusion
from service.feedback.store import FeedbackStore, JudgedQuery
from service.state import open_state
from tests.kit.command import run_main

CopyTopics = Callable[..., Path]
TOPICS = 60
COMMON = (
    "river", "stone", "music", "winter", "letter", "engine", "forest", "harbour", "garden", "window"
)  # fmt: skip
BLIND = LinearFusion(0.0)  # looks at the vectors of an untrained checkpoint alone


OWN_WORDS = 12  # of a text; with fewer an untrained checkpoint finds less
OTHERS = 29  # documents of other topics that a query is judged with


def text(topic: int, draw: random.Random, own_words: int = OWN_WORDS) -> str:
    """A text that only its words tell from those of other topics."""
    own = [f"word{topic}x{number}" for number in range(4)]
    words = draw.choices(COMMON, k=60) + draw.choices(own, k=own_words)
    draw.shuffle(words)
    return " ".join(words) + "."


@pytest.fixture(scope="session")
def copy_topics(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> CopyTopics:
    """Copy a data directory of two documents on each topic, and its corpus, into a folder.

    `copy_topics(folder, own_words=3, judged=40)`: the documents of each number of own words are
    indexed once, and so many topics of them are judged once.
    """

    @cache
    def make(own_words: int, judged: int, others: int) -> Path:
        folder = tmp_path_factory.mktemp("topics")
        if judged:
            shutil.copytree(make(own_words, 0, others), folder, dirs_exist_ok=True)
            judge(folder / "data", judged, own_words, others)
            return folder
        corpus, draw = folder / "corpus.jsonl", random.Random(3)
        names = [f"{side}{topic}" for topic in range(TOPICS) for side in "ab"]
        lines = [{"id": name, "text": text(int(name[1:]), draw, own_words)} for name in names]
        corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LONGMATCH_ENCODER", str(tiny_checkpoint))
            assert run_main(patch, "index", corpus, "--data", folder / "data") == 0
        return folder

    def copy(
        folder: Path, own_words: int = OWN_WORDS, judged: int = 0, others: int = OTHERS
    ) -> Path:
        shutil.copytree(make(own_words, judged, others), folder, dirs_exist_ok=True)
        return folder / "data"

    return copy


def judge(data: Path, topics: int, own_words: int = OWN_WORDS, others: int = OTHERS) -> None:
    """Say that documents of a topic are relevant to one another, and some of others not."""
    draw = random.Random(5)
    with closing(open_state(data)) as state:
        feedback = FeedbackStore(state)
        for topic in range(topics):
            stored = JudgedQuery(document_id=f"a{topic}")
            question = JudgedQuery(text=text(topic, draw, own_words), title="A question")
            for query in (stored, question) if topic % 2 else (stored,):
                feedback.put(query, f"b{topic}", 1 + topic % 3)
                for step in range(1, others + 1):
                    feedback.put(query, f"b{(topic + step) % TOPICS}", 0)


def use(data: Path, checkpoint: Path, rule: LinearFusion) -> None:
    fingerprint = vector_space(load_checkpoint(checkpoint)).fingerprint
    CorpusFusion(fingerprint, rule, {}).write(data)
