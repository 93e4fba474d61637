"""Fit the rule of a reranker on the valid splits of labelled corpora.

    python -m benchmarks.fit_rerank --reranker DIR --data FOLDER --vectors FOLDER --work FOLDER

A mixture of both stages for each mode, by nDCG@10 of the first candidates of validation queries;
then a map from its scores to match probability, by the validation pairs. `--data` holds one folder
for each corpus, `--vectors` NAME.npz for each as `longmatch embed` wrote it, `--work` keeps logits.
`--write` puts the rule into the directory of the reranker as `rule.json`.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rerank_corpora import JudgedCorpus, open_judge, read_judged_corpus
from encoder.calibration import FittedOn
from encoder.checkpoint import DEFAULT_CHECKPOINT, file_digest, load_checkpoint
from encoder.rerank_rule import Mixture, RerankRule, write_rerank_rule
from encoder.reranker import open_reranker
from index.quality import Retrieval
from index.rerank_fit import Candidates, fit_mixture, fit_rerank_map, judge_candidates, ndcg_of
from index.rerank_systems import PairJudge, mix

MODES = ("semantic", "lexical", "hybrid")


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--reranker", "--data", "--vectors", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--corpora", default="proposals,wikispeedia")
    parser.add_argument("--checkpoint", type=Path, default=DEFAULT_CHECKPOINT)
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--queries", type=int, help="of each corpus, drawn; all by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    checkpoint, reranker = load_checkpoint(given.checkpoint), open_reranker(given.reranker)
    corpora = [
        read_judged_corpus(given.data / name, given.vectors / f"{name}.npz", checkpoint)
        for name in given.corpora.split(",")
    ]
    judges = [open_judge(one, reranker, given.work, given.threads) for one in corpora]
    questions = [one.question("valid", given.queries) for one in corpora]
    asked = list(zip(corpora, judges, questions, strict=True))
    fitted = {mode: fit(mode, asked, given.candidates) for mode in MODES}
    rule = RerankRule(
        encoder=checkpoint.fingerprint,
        mixtures={mode: mixture for mode, (mixture, _) in fitted.items()},
        maps={
            mode: fit_rerank_map(
                [
                    scored_pairs(mode, mixture, one, judge)
                    for one, judge in zip(corpora, judges, strict=True)
                ]
            )
            for mode, (mixture, _) in fitted.items()
        },
        fitted_on=tuple(fitted_on(one) for one in corpora),
    )
    shown = {mode: {**asdict(mixture), **table} for mode, (mixture, table) in fitted.items()}
    print(json.dumps({"version": rule.version, "modes": shown}, indent=2))
    if given.write:
        write_rerank_rule(reranker.checkpoint, rule)


def fit(
    mode: str, asked: Sequence[tuple[JudgedCorpus, PairJudge, Retrieval]], candidates: int
) -> tuple[Mixture, dict[str, Any]]:
    """Fit the mixture of one mode, and show nDCG@10 of both stages on the same queries."""
    known: list[Candidates] = []
    for corpus, judge, question in asked:
        system = corpus.systems[mode]
        known.append(
            judge_candidates(system, judge, question.ids, question.rows, question.qrels, candidates)
        )
    found = fit_mixture(known)
    table = {
        corpus.folder.name: {
            "queries": len(one.ideal),
            "first stage": round(float(ndcg_of(one, Mixture(0.0, 1.0)).mean()), 4),
            "reranker alone": round(float(ndcg_of(one, Mixture(1.0, 1.0)).mean()), 4),
            "reranked": round(float(ndcg_of(one, found.mixture).mean()), 4),
            "at its own best": round(float(found.ndcg[number].max()), 4),
        }
        for number, ((corpus, _, _), one) in enumerate(zip(asked, known, strict=True))
    }
    return found.mixture, table


def scored_pairs(
    mode: str, mixture: Mixture, corpus: JudgedCorpus, judge: PairJudge
) -> tuple[np.ndarray, np.ndarray]:
    """Return reranked scores and labels of the validation pairs of a corpus."""
    pairs = corpus.pairs("valid")
    first_stage = corpus.systems[mode].score_pairs(pairs.sources, pairs.targets)
    logits = judge(list(zip(pairs.sources.tolist(), pairs.targets.tolist(), strict=True)))
    return mix(mixture, first_stage, logits), pairs.labels.astype(np.int64)


def fitted_on(corpus: JudgedCorpus) -> FittedOn:
    """Name the validation pairs of a corpus."""
    path, pairs = corpus.folder / "pairs.valid.jsonl.gz", corpus.pairs("valid")
    return FittedOn(
        f"{corpus.folder.name} valid",
        len(pairs.labels),
        int(pairs.labels.sum()),
        file_digest(path),
    )


if __name__ == "__main__":
    main()
