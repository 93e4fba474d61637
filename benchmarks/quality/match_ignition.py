"""What do the two noise filters contribute? Tables 5, 6 and 7 of the paper.

All cells use one fine-tuned reranker; filters are switched at inference time and nothing is
retrained. A cell therefore measures this reranker without a filter that it was trained with, not a
reranker trained without it. Labelled pairs of the test part. Accuracy and F1, the paper's figures,
are at the threshold that is best on the validation pairs, and are left out without such pairs; the
AUC needs no threshold. Measured cells are kept in `--work`.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.common import commit, make_record, write_record
from benchmarks.quality.match_ignition_table import table
from encoder.arrays import Float32
from encoder.export.create import load_reranker_model
from encoder.models.match_ignition import MatchIgnition
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from encoder.reranker.pair_tokenizer import (
    PairTokenizer,
    PairTokens,
    collate_pairs,
)
from encoder.reranker.sentence_ranking import SentenceGraphText
from evaluation.judgements import read_pairs
from evaluation.metrics import AUC, choose_threshold, measure_pairs
from index.corpus.reader import read_corpus
from index.document import Document
from training.data.files import find_corpus_files, part_in_name

BATCH = 16
REDUCTIONS = (0.0, 0.05, 0.1, 0.2)
LabelledTexts = tuple[str, str, int]
IMPORTANCES = ("pagerank", "attention", "norm", "random")


def main(
    reranker: Annotated[Path, typer.Option(help="A reranker with its weights.")],
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    work: Annotated[Path, typer.Option(help="Keeps cells.")],
    corpora: Annotated[str, typer.Option(help="Names, comma-separated.")] = "proposals,wikispeedia",
    pairs: Annotated[int, typer.Option(help="Test pairs sampled from each corpus.")] = 200,
) -> None:
    """Measure every cell of the three tables on the pairs of every corpus."""
    source, checkpoint = commit(), load_reranker_checkpoint(reranker)
    work.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for name in corpora.split(","):
        kept = work / f"cells-{name}-{checkpoint.fingerprint[:16]}-{pairs}.json"
        results[name] = measure(checkpoint, data / name, pairs, kept)
    settings = {
        "reranker": checkpoint.name,
        "fingerprint": checkpoint.fingerprint,
        "pairs": pairs,
        "batch": BATCH,
        "precision": "fp32",
    }
    record = make_record("match-ignition", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    checkpoint: RerankerCheckpoint, folder: Path, number: int, kept: Path
) -> dict[str, dict[str, float]]:
    """Measure each cell on one corpus; kept cells are not measured again."""
    cells: dict[str, dict[str, float]] = (
        json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    )
    test, valid = (sample_pairs(folder, number, part) for part in ("test", "valid"))
    for cell, change in plan(checkpoint).items():
        if cell not in cells:
            cells[cell] = measure_cell(change, test, valid)
            kept.write_text(json.dumps(cells), encoding="utf-8")
    return cells


class Change:
    """What a cell changes: how pairs are read, and how words are dropped."""

    def __init__(self, checkpoint: RerankerCheckpoint, *, filtered: bool, **model: Any) -> None:
        shape = checkpoint.pair
        if not filtered:  # each text is read from its beginning
            shape = replace(shape, lead_sentences=0, sentence_tokens=shape.length, filtered=False)
        self.checkpoint = replace(checkpoint, pair=shape)
        self.model: Callable[[], MatchIgnition] = lambda: load_reranker_model(checkpoint, model)


def plan(checkpoint: RerankerCheckpoint) -> Mapping[str, Change]:
    """Return the cells of the three tables by name."""
    trained = float(checkpoint.model["reduction"])

    def change(filtered: bool, reduction: float, importance: str = "pagerank") -> Change:
        return Change(checkpoint, filtered=filtered, reduction=reduction, importance=importance)

    return {
        "5 neither filter": change(False, 0.0),
        "5 sentence filter": change(True, 0.0),
        "5 word filter": change(False, trained),
        "5 both filters": change(True, trained),
        **{f"6 {reduction:.0%}": change(True, reduction) for reduction in REDUCTIONS},
        **{f"7 {one}": change(True, 0.2, one) for one in IMPORTANCES},
    }


def measure_cell(
    change: Change, test: Sequence[LabelledTexts], valid: Sequence[LabelledTexts]
) -> dict[str, float]:
    """Return AUC, accuracy and F1 of test pairs, and the processor time of a batch."""
    from sklearn.metrics import roc_auc_score  # takes seconds to import

    model, checkpoint = change.model(), change.checkpoint
    torch.set_num_threads(1)
    torch.manual_seed(0)
    logits, milliseconds = _judge(model, checkpoint, test)
    labels = np.array([bool(label) for _, _, label in test])
    figures = {AUC: float(roc_auc_score(labels, logits)), "ms_per_batch": milliseconds}
    if valid:
        known = np.array([bool(label) for _, _, label in valid])
        threshold = choose_threshold(_judge(model, checkpoint, valid)[0], known)
        measured = measure_pairs(logits, labels, threshold)
        figures |= {name: measured[name] for name in ("accuracy", "F1")}
    return figures


def _judge(
    model: MatchIgnition, checkpoint: RerankerCheckpoint, labelled: Sequence[LabelledTexts]
) -> tuple[Float32, float]:
    """Return the logits of pairs, and the median processor time of a batch in milliseconds."""
    pairs = _tokens(checkpoint, labelled)
    logits, seconds = [], []
    with torch.no_grad():
        for start in range(0, len(pairs), BATCH):
            batch = collate_pairs(pairs[start : start + BATCH], checkpoint.padding_token)
            began = time.thread_time()
            logits.append(model(*(torch.from_numpy(array) for array in batch)).numpy())
            seconds.append(time.thread_time() - began)
    return np.concatenate(logits), 1000 * float(np.median(seconds))


def sample_pairs(folder: Path, number: int | None, part: str) -> list[LabelledTexts]:
    """Return texts and labels of pairs of a part, or of all; none where no file is of that part."""
    files = [path for path in find_corpus_files(folder).pairs if part_in_name(path) == part]
    pairs = [pair for path in files for pair in read_pairs(path)]
    chosen = np.random.default_rng(0).permutation(len(pairs))[:number].tolist()
    texts = {one.id: one.titled_text for one in read_corpus(folder) if isinstance(one, Document)}
    return [(texts[p.source], texts[p.target], int(p.label)) for p in (pairs[n] for n in chosen)]


def _tokens(checkpoint: RerankerCheckpoint, labelled: Sequence[LabelledTexts]) -> list[PairTokens]:
    reader = PairTokenizer(checkpoint)
    read: dict[str, SentenceGraphText] = {}
    for first, second, _ in labelled:
        for text in (first, second):
            if text not in read:
                read[text] = reader.read(text)
    return [reader.pair(read[first], read[second]) for first, second, _ in labelled]


if __name__ == "__main__":
    typer.run(main)
