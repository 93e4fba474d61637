"""Fit the rule that joins the scores of vectors and words, on the valid splits of labelled corpora.

    python -m benchmarks.fit_fusion --data FOLDER [--vectors FOLDER] [--checkpoint DIR] [--write]

FOLDER holds one folder for each corpus, with `corpus.jsonl.gz`, `qrels.tsv` and `splits.tsv`;
`--vectors` holds NAME.npz for each of them as `longmatch embed` wrote it; without it every corpus
is encoded here. `--write` puts the rule into the checkpoint as `fusion.json`.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from encoder.checkpoint import DEFAULT_CHECKPOINT, Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from index.corpus import read_documents
from index.embed import EmbeddedCorpus, embed_corpus, read_embedded_corpus
from index.fusion import write_fusion
from index.fusion_fit import FusionCorpus, FusionFit, fit_fusion
from index.mode_systems import lexical_system
from index.observer import SilentObserver
from index.qrels import read_qrels
from index.quality import Retrieval
from index.splits import read_splits
from index.systems import vector_system


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    checkpoint = load_checkpoint(given.checkpoint)
    folders = sorted(path.parent for path in given.data.glob("*/qrels.tsv"))
    if given.vectors:
        folders = [one for one in folders if (given.vectors / f"{one.name}.npz").exists()]
    if not folders:
        sys.exit(f"{given.data}: no corpus with judgements (and vectors) is there")
    corpora = [read(folder, given.vectors, checkpoint) for folder in folders]
    fitted = fit_fusion(corpora)
    print(json.dumps(report([folder.name for folder in folders], fitted), indent=2))
    if given.write:
        write_fusion(checkpoint, fitted.rule)


def read(folder: Path, vectors: Path | None, checkpoint: Checkpoint) -> FusionCorpus:
    """Read one corpus, its vectors and its validation queries."""
    corpus = folder / "corpus.jsonl.gz"
    if vectors:
        embedded = read_embedded_corpus(vectors / f"{folder.name}.npz")
    else:
        embedded = encode(corpus, checkpoint)
    documents = read_documents(corpus, embedded.ids)
    splits, qrels = read_splits(folder / "splits.tsv"), read_qrels(folder / "qrels.tsv")
    rows = [
        row
        for row, name in enumerate(embedded.ids)
        if name in qrels and splits.get(name) == "valid"
    ]
    question = Retrieval(
        ids=embedded.ids,
        query_ids=tuple(embedded.ids[row] for row in rows),
        rows=np.array(rows, dtype=np.int64),
        tokens=embedded.tokens[rows],
        qrels=qrels,
    )
    return FusionCorpus(
        question=question,
        semantic=vector_system("semantic", checkpoint.name, embedded.vectors),
        lexical=lexical_system([one.text for one in documents], [one.title for one in documents]),
    )


def encode(corpus: Path, checkpoint: Checkpoint) -> EmbeddedCorpus:
    """Encode a corpus with all cores."""
    encoder = OnnxEncoder(checkpoint)
    return embed_corpus(corpus, BlockTokenizer(checkpoint), encoder, SilentObserver())


def report(names: list[str], fitted: FusionFit) -> dict[str, object]:
    """Return what was fitted as JSON shows it."""
    chosen = fitted.weights.index(fitted.rule.lexical)
    every = fitted.ndcg.mean(axis=0)

    def row(values: np.ndarray, ranks: float) -> dict[str, float]:
        return {
            "semantic": round(float(values[0]), 4),
            "lexical": round(float(values[-1]), 4),
            "reciprocal rank fusion": round(float(ranks), 4),
            "hybrid": round(float(values[chosen]), 4),
            "hybrid at its own best weight": round(float(values.max()), 4),
        }

    ranks = fitted.reciprocal_rank
    return {
        "lexical_weight": fitted.rule.lexical,
        "nDCG@10 of valid": {
            **{one: row(fitted.ndcg[n], ranks[n]) for n, one in enumerate(names)},
            "mean": row(every, float(ranks.mean())),
        },
        "mean by weight": {
            str(weight): round(float(value), 4)
            for weight, value in zip(fitted.weights, every, strict=True)
        },
    }


if __name__ == "__main__":
    main()
