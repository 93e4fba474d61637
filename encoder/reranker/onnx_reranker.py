"""The reranker at serving time: scores how likely two documents match, read together."""

from pathlib import Path
from typing import Protocol

import numpy as np

from encoder.checkpoint import PAIR_GRAPH
from encoder.errors import CheckpointError
from encoder.onnx_session import open_pair_graph
from encoder.reranker.checkpoint import (
    RerankerCheckpoint,
    find_reranker,
    load_reranker_checkpoint,
)
from encoder.reranker.golden import check_pair_parity, read_golden_pairs
from encoder.reranker.pair_tokenizer import PairTokenizer, PairTokens
from encoder.reranker.score_fusion import ScoreFusion, read_score_fusion
from encoder.reranker.sentence_ranking import SentenceGraphText


class Reranker(Protocol):
    """Scores pairs of texts. Safe to call from threads."""

    @property
    def name(self) -> str:
        """Return its name, for display."""
        ...

    @property
    def rule(self) -> ScoreFusion:
        """Return how its logits and the scores of a first stage become one score."""
        ...

    def read(self, text: str) -> SentenceGraphText:
        """Read a text once for many pairs."""
        ...

    def score(self, first: SentenceGraphText, second: SentenceGraphText) -> float:
        """Return the logit of the probability that two documents match."""
        ...


class OnnxReranker:
    """Match-Ignition by ONNX Runtime on a CPU: one pair is one call on the calling thread.

    Attributes:
        checkpoint: what it was loaded from.
        precision: of the graph in use.
    """

    def __init__(self, checkpoint: RerankerCheckpoint, *, precision: str | None = None) -> None:
        """Open the graph of a checkpoint.

        Args:
            checkpoint: from `load_reranker_checkpoint`.
            precision: "int8" or "fp32"; by default int8 if available.

        Raises:
            CheckpointError: the graph is missing or changed.
        """
        having = checkpoint.precisions
        chosen = precision or next(iter(having), None)
        if chosen not in having:
            raise CheckpointError(
                f"{checkpoint.directory} has no {precision or 'graph'}; "
                f"it has: {', '.join(having) or 'none'}"
            )
        name = f"{chosen}/{PAIR_GRAPH}"
        self._session = open_pair_graph(checkpoint.directory, checkpoint.files, name)
        self._reader = PairTokenizer(checkpoint)
        self._rule = read_score_fusion(checkpoint)
        self.checkpoint = checkpoint
        self.precision = chosen

    @property
    def name(self) -> str:
        """Return the name of the checkpoint."""
        return self.checkpoint.name

    @property
    def rule(self) -> ScoreFusion:
        """Return the rule of the checkpoint."""
        return self._rule

    def read(self, text: str) -> SentenceGraphText:
        """Split a text into sentences and words."""
        return self._reader.read(text)

    def score(self, first: SentenceGraphText, second: SentenceGraphText) -> float:
        """Select sentences of both texts and score them together."""
        return self.score_tokens(self.pair(first, second))

    def pair(self, first: SentenceGraphText, second: SentenceGraphText) -> PairTokens:
        """Select sentences of both texts and join their tokens."""
        return self._reader.pair(first, second)

    def score_tokens(self, pair: PairTokens) -> float:
        """Return the logit of a pair of tokens."""
        inputs = {
            "input_ids": pair.input_ids[np.newaxis],
            "token_types": pair.token_types[np.newaxis],
            "special": pair.special[np.newaxis],
        }
        return float(self._session.run(None, inputs)[0][0])

    def warm_up(self) -> None:
        """Run the golden pairs.

        Raises:
            ParityError: on this machine the graph does not compute what the model computes.
        """
        golden = read_golden_pairs(self.checkpoint)
        check_pair_parity(golden.difference(self.score_tokens), self.precision)


def open_reranker(name: Path, *, precision: str | None = None) -> OnnxReranker:
    """Open a reranker by its directory, or by the name of one that ships.

    Raises:
        CheckpointError: it is missing, damaged or not a reranker.
    """
    return OnnxReranker(load_reranker_checkpoint(find_reranker(name)), precision=precision)
