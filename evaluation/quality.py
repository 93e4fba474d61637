"""The quality gate of exports: what a smaller precision may lose against fp32.

`evaluation.quality_gate` computes the figures; the limits, the check and the report in the
checkpoint are here.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from encoder.checkpoint import BLOCK_GRAPH, DOCUMENT_GRAPH, QUALITY
from encoder.errors import QualityError

MINIMUM_NEIGHBOURS = 0.98  # share of the 10 nearest neighbours of fp32 that must stay
MAXIMUM_NDCG_LOSS = 0.005  # of nDCG@10, relative to fp32


@dataclass(frozen=True, slots=True)
class Quality:
    """How one precision compares with fp32 over a sample of documents.

    Attributes:
        corpus: name of the sampled corpus.
        corpus_documents: how many documents it has.
        documents: how many of them were compared.
        tokens: how many tokens of those were read.
        seed: of the sample.
        neighbours: share of the 10 nearest neighbours of fp32 that are among its own 10.
        queries: how many have judgements; 0 where the corpus has none.
        ndcg: nDCG@10 over them; None where there are none.
        ndcg_fp32: the same of fp32.
    """

    corpus: str
    corpus_documents: int
    documents: int
    tokens: int
    seed: int
    neighbours: float
    queries: int = 0
    ndcg: float | None = None
    ndcg_fp32: float | None = None

    @property
    def ndcg_loss(self) -> float | None:
        """Loss of nDCG@10 relative to fp32, under 0 for a gain; None without judgements."""
        if self.ndcg is None or self.ndcg_fp32 is None:
            return None
        return 1 - self.ndcg / self.ndcg_fp32 if self.ndcg_fp32 else 0.0


def check_quality(quality: Quality, precision: str) -> None:
    """Check that a precision loses no more than the gate allows."""
    where = f"{precision}/{BLOCK_GRAPH} and {DOCUMENT_GRAPH} on {quality.documents} documents"
    where = f"{where} of {quality.corpus}"
    # "not >=" also refuses NaN
    if not quality.neighbours >= MINIMUM_NEIGHBOURS:
        raise QualityError(
            f"{where}: {quality.neighbours:.2%} of the 10 nearest neighbours of fp32 are kept, "
            f"under {MINIMUM_NEIGHBOURS:.0%}"
        )
    loss = quality.ndcg_loss
    if loss is not None and not loss <= MAXIMUM_NDCG_LOSS:
        raise QualityError(
            f"{where}: nDCG@10 is {quality.ndcg:.4f} and that of fp32 {quality.ndcg_fp32:.4f}, "
            f"a loss of {loss:.2%}, over {MAXIMUM_NDCG_LOSS:.1%}"
        )


def write_quality(directory: Path, qualities: Mapping[str, Quality]) -> None:
    """Write the figures of some precisions into `quality.json`; those of others stay."""
    limits = {"neighbours": MINIMUM_NEIGHBOURS, "ndcg_loss": MAXIMUM_NDCG_LOSS}
    figures = {
        precision: {**asdict(quality), "ndcg_loss": quality.ndcg_loss, "limits": limits}
        for precision, quality in qualities.items()
    }
    add_to_report(directory / QUALITY, figures)


def add_to_report(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures of some precisions into a JSON report; those of others stay."""
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(report | figures, indent=2) + "\n", encoding="utf-8")
