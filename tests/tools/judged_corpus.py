"""A data directory of topics that only words tell apart, with feedback and rules for it."""

import json
import random
from contextlib import closing
from pathlib import Path

from encoder.adapter import vector_space
from encoder.checkpoint import load_checkpoint
from index.search.corpus_fusion import CorpusFusion, write_corpus_fusion
from index.search.fusion import LinearFusion
from service.feedback.store import FeedbackLimits, open_feedback
from service.feedback.verdict import JudgedQuery
from tests.tools.command import Run

TOPICS = 60
COMMON = [
    "river",
    "stone",
    "music",
    "winter",
    "letter",
    "engine",
    "forest",
    "harbour",
    "garden",
    "window",
]
LIMITS = FeedbackLimits(10_000, 10**8)
BLIND = LinearFusion(0.0, 0.0)  # looks at the vectors of an untrained checkpoint alone


OWN_WORDS = 12  # of a text; with fewer an untrained checkpoint finds less


def text(topic: int, draw: random.Random, own_words: int = OWN_WORDS) -> str:
    """A text that only its words tell from those of other topics."""
    own = [f"word{topic}x{number}" for number in range(4)]
    words = draw.choices(COMMON, k=60) + draw.choices(own, k=own_words)
    draw.shuffle(words)
    return " ".join(words) + "."


def index_topics(longmatch: Run, tmp_path: Path, own_words: int = OWN_WORDS) -> Path:
    """Make a data directory of two documents on each topic."""
    draw = random.Random(3)
    corpus = tmp_path / "corpus.jsonl"
    names = [f"{side}{topic}" for topic in range(TOPICS) for side in "ab"]
    lines = [{"id": name, "text": text(int(name[1:]), draw, own_words)} for name in names]
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert longmatch("index", corpus).status == 0
    return tmp_path / "data"


def judge(data: Path, topics: int, own_words: int = OWN_WORDS) -> None:
    """Say that documents of a topic are relevant to one another, and of others not."""
    draw = random.Random(5)
    with closing(open_feedback(data)) as feedback:
        for topic in range(topics):
            stored = JudgedQuery(document_id=f"a{topic}")
            asked = JudgedQuery(text=text(topic, draw, own_words), title="A question")
            for query in (stored, asked) if topic % 2 else (stored,):
                feedback.put(query, f"b{topic}", 1 + topic % 3, LIMITS)
                for step in range(1, 30):
                    feedback.put(query, f"b{(topic + step) % TOPICS}", 0, LIMITS)


def use(data: Path, checkpoint: Path, rule: LinearFusion) -> None:
    fingerprint = vector_space(load_checkpoint(checkpoint), None).fingerprint
    write_corpus_fusion(data, CorpusFusion(fingerprint, rule, {}))
