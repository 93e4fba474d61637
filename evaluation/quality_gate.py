"""The quality gate of exports: how much of fp32's rankings int8 and fp16 keep."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.checkpoint import BLOCK_GRAPH, DOCUMENT_GRAPH, QUALITY, Checkpoint
from encoder.errors import QualityError
from encoder.opening import open_encoder
from index.build import encode_documents
from index.corpus.demo import write_stdlib_corpus
from index.corpus.reader import read_corpus
from index.document import Document
from index.errors import CorpusError
from index.progress import Progress
from index.store.records import EncodedDocument

NEIGHBOURS = 10
_DOCUMENTS_PER_CALL = 16
MINIMUM_NEIGHBOURS = 0.98  # share of the 10 nearest neighbours of fp32 that must stay
_TIE = 1e-6  # cosines closer than this are equal


@dataclass(frozen=True, slots=True)
class Quality:
    """How one precision compares with fp32 over some documents.

    Attributes:
        documents: how many were compared.
        tokens: how many tokens of them were read.
        neighbours: share of the 10 nearest neighbours of fp32 that are among its own 10.
    """

    documents: int
    tokens: int
    neighbours: float


def check_quality(quality: Quality, precision: str) -> None:
    """Check that a precision loses no more than the gate allows."""
    where = f"{precision}/{BLOCK_GRAPH} and {DOCUMENT_GRAPH} on {quality.documents} documents"
    # "not >=" also refuses NaN
    if not quality.neighbours >= MINIMUM_NEIGHBOURS:
        raise QualityError(
            f"{where}: {quality.neighbours:.2%} of the 10 nearest neighbours of fp32 are kept, "
            f"under {MINIMUM_NEIGHBOURS:.0%}"
        )


def write_quality(directory: Path, qualities: Mapping[str, Quality]) -> None:
    """Write the figures of some precisions into `quality.json`; those of others stay."""
    limits = {"neighbours": MINIMUM_NEIGHBOURS}
    figures = {
        precision: {**asdict(quality), "limits": limits} for precision, quality in qualities.items()
    }
    add_to_report(directory / QUALITY, figures)


def add_to_report(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures of some precisions into a JSON report; those of others stay."""
    report = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(report | figures, indent=2) + "\n", encoding="utf-8")


def read_stdlib() -> list[Document]:
    """Return the documentation that ships with Python, some 200 documents."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "python-stdlib.jsonl"
        write_stdlib_corpus(path)
        return [item for item in read_corpus(path) if isinstance(item, Document)]


def measure_quality(
    checkpoint: Checkpoint,
    precisions: Sequence[str],
    documents: Sequence[Document],
    progress: Progress,
) -> dict[str, Quality]:
    """Compare precisions of a checkpoint with its fp32 on a CPU.

    Raises:
        CorpusError: the documents are too few.
    """
    exact = _encode(checkpoint, "fp32", documents, progress)
    qualities = {}
    for precision in precisions:
        found = _encode(checkpoint, precision, documents, progress)
        qualities[precision] = Quality(
            documents=len(found),
            tokens=sum(result.receipt.tokens_read for result in found),
            neighbours=neighbours_kept(_vectors(exact), _vectors(found)),
        )
    return qualities


def neighbours_kept(exact: Float32, found: Float32, k: int = NEIGHBOURS) -> float:
    """Return the share of the k nearest neighbours in one space that are also nearest in another.

    Neighbours are compared by cosine, so that it does not matter which of equal ones is found.

    Args:
        exact: Float32[N, dimension], unit norm.
        found: Float32[N, dimension], the same documents.
        k: neighbours, fewer than N.
    """
    cosines, others = exact @ exact.T, found @ found.T  # [N, N]
    np.fill_diagonal(cosines, -np.inf)
    np.fill_diagonal(others, -np.inf)
    worst = np.partition(cosines, -k, axis=1)[:, -k, None] - _TIE  # [N, 1]
    chosen = np.argsort(-others, axis=1, kind="stable")[:, :k]
    return float((np.take_along_axis(cosines, chosen, axis=1) >= worst).mean())


def _encode(
    checkpoint: Checkpoint, precision: str, documents: Sequence[Document], progress: Progress
) -> list[EncodedDocument]:
    encoder = open_encoder(checkpoint, precision=precision, providers=["cpu"])
    progress.started(f"encoding with {precision}", len(documents))
    encoded: list[EncodedDocument] = []
    for start in range(0, len(documents), _DOCUMENTS_PER_CALL):
        some = documents[start : start + _DOCUMENTS_PER_CALL]
        encoded += encode_documents(some, encoder, progress)
    if len(encoded) < NEIGHBOURS + 2:
        raise CorpusError(
            f"{len(encoded)} documents are too few to compare {NEIGHBOURS} neighbours: it takes "
            f"{NEIGHBOURS + 2}"
        )
    return encoded


def _vectors(encoded: Sequence[EncodedDocument]) -> Float32:
    return np.stack([result.vector for result in encoded])
