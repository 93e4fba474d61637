"""Does reranking the first candidates find more, and what does it cost?

For each corpus, part and mode: nDCG@10 of the first stage and after reranking its first candidates,
on the same queries, with the gain, its bootstrap interval and the p-value of a paired test.
The rule of the reranker was fitted on the validation parts (`evaluation/fitting/reranking.py`), so
the gain on the test part is unbiased. A corpus is a folder of `--data` with `corpus.jsonl.gz`,
`qrels.tsv` and `splits.tsv`, and NAME.npz of `--vectors` as `longmatch embed --blocks` wrote it.
`--work` keeps logits.

The cost is processor time of one thread, which other load on the machine affects less than
wall-clock time.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.common import commit, make_record, markdown_table, spread, write_record
from encoder.checkpoint import DEFAULT_CHECKPOINT, load_checkpoint
from encoder.reranker.onnx_reranker import OnnxReranker, open_reranker
from encoder.reranker.sentence_ranking import SentenceGraphText, rank_sentences, split_for_ranking
from evaluation.fitting.reranking import JudgedCorpus, open_pair_scorer, read_judged_corpus
from evaluation.metrics import QueryMeasures, evaluate_per_query
from evaluation.report import RetrievalTask
from evaluation.reranking import PairScorer, best_candidates, reranked_system
from evaluation.significance import compare_paired, estimate_means
from evaluation.systems import System, rank

MODES = ("semantic", "lexical", "hybrid")
SENTENCES = 500  # of each of two texts


def main(
    reranker: Annotated[Path, typer.Option(help="A reranker, or the name of one that ships.")],
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    vectors: Annotated[Path, typer.Option(help="A folder of their vectors, NAME.npz.")],
    work: Annotated[Path, typer.Option(help="Directory that keeps logits.")],
    corpora: Annotated[str, typer.Option(help="Names, comma-separated.")] = "proposals,wikispeedia",
    parts: Annotated[
        str, typer.Option(help="valid, test, or both, comma-separated.")
    ] = "valid,test",
    candidates: Annotated[int, typer.Option(help="Candidates that are reranked.")] = 50,
    queries: Annotated[
        int | None, typer.Option(help="Queries sampled from each part; all by default.")
    ] = None,
    checkpoint: Annotated[Path, typer.Option(help="The encoder.")] = DEFAULT_CHECKPOINT,
    threads: Annotated[int, typer.Option(help="Threads that score pairs.")] = 2,
) -> None:
    """Measure both stages on every corpus, part and mode."""
    source = commit()
    encoder, opened = load_checkpoint(checkpoint), open_reranker(reranker)
    results: dict[str, Any] = {"corpora": {}}
    for name in corpora.split(","):
        corpus = read_judged_corpus(data / name, vectors / f"{name}.npz", encoder)
        scorer = open_pair_scorer(corpus, opened, work, threads)
        results["corpora"][name] = {
            part: measure(corpus, scorer, opened, corpus.task(part, queries), candidates)
            for part in parts.split(",")
        }
        results["cost"] = measure_cost(corpus, opened, corpus.task("valid", 10), candidates)
    results["filter_ms"] = asdict(measure_filter(corpus))
    settings = {
        "reranker": opened.name,
        "fingerprint": opened.checkpoint.fingerprint,
        "precision": opened.precision,
        "pair": asdict(opened.checkpoint.pair),
        "candidates": candidates,
        "checkpoint": encoder.name,
        "queries_of_a_part": queries or "all",
    }
    record = make_record("rerank", source, settings, results)
    typer.echo(table(record))
    write_record(record)


def measure(
    corpus: JudgedCorpus,
    scorer: PairScorer,
    reranker: OnnxReranker,
    task: RetrievalTask,
    candidates: int,
) -> dict[str, Any]:
    """Measure both stages of each mode on the queries of one part."""
    report: dict[str, Any] = {"queries": len(task.query_ids)}
    for mode in MODES:
        system, mixture = corpus.systems[mode], reranker.rule.weights_of(mode)
        before = _evaluate(system, task)
        second = reranked_system(system, scorer, mixture, candidates, "reranked")
        after = _evaluate(second, task)
        values = [one.ndcg for one in (before, after)]
        first, reranked = (estimate_means(one[:, None])[0] for one in values)
        report[mode] = {
            "weight": mixture.weight,
            "first_stage": asdict(first),
            "reranked": asdict(reranked),
            "gain": asdict(compare_paired(values[1], values[0])),
        }
    return report


def measure_cost(
    corpus: JudgedCorpus, reranker: OnnxReranker, task: RetrievalTask, candidates: int
) -> dict[str, Any]:
    """Measure the processor time of reading, filtering and judging a candidate, one thread."""
    best = best_candidates(corpus.systems["lexical"], task.rows, candidates)
    milliseconds: dict[str, list[float]] = {"read": [], "filter": [], "judge": []}
    tokens: list[float] = []
    for row, some in zip(task.rows.tolist(), best, strict=True):
        query = reranker.read(corpus.texts[row])
        for other in some[:10]:
            clock = [time.thread_time()]
            text = reranker.read(corpus.texts[other])
            clock.append(time.thread_time())
            pair = reranker.pair(query, text)
            clock.append(time.thread_time())
            reranker.score_tokens(pair)
            clock.append(time.thread_time())
            tokens.append(float(len(pair)))
            for name, (start, end) in zip(milliseconds, itertools.pairwise(clock), strict=True):
                milliseconds[name].append(1000 * (end - start))
    return {
        "ms_per_candidate": {name: asdict(spread(some)) for name, some in milliseconds.items()},
        "tokens": asdict(spread(tokens)),
    }


def measure_filter(corpus: JudgedCorpus) -> Any:
    """Measure the sentence-level filter on two texts of 500 sentences, one thread."""
    words = itertools.chain.from_iterable(_words(text) for text in corpus.texts)
    texts = [tuple(itertools.islice(words, SENTENCES)) for _ in range(2)]
    read = [SentenceGraphText("", tuple((0, 0) for _ in some), some) for some in texts]
    rounds = []
    for _ in range(9):
        started = time.thread_time()
        rank_sentences(*read)
        rounds.append(1000 * (time.thread_time() - started))
    return spread(rounds[1:])


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    rows = [
        [name, part, mode, *_cells(of_part[mode])]
        for name, parts in record["results"]["corpora"].items()
        for part, of_part in parts.items()
        for mode in MODES
    ]
    settings, results = record["settings"], record["results"]
    header = ["corpus", "part", "mode", "first stage", "reranked", "gain (95 % interval)", "p"]
    costs = [
        [name, one["median"], one["low"], one["high"]]
        for name, one in results["cost"]["ms_per_candidate"].items()
    ]
    return "\n\n".join(
        [
            f"nDCG@10, the first {settings['candidates']} reranked by {settings['reranker']}",
            markdown_table(header, rows),
            "Processor time of one candidate on one thread, ms",
            markdown_table(["step", "median", "lowest", "highest"], costs),
            f"Sentence filter of 2 x {SENTENCES} sentences: "
            f"{results['filter_ms']['median']:.1f} ms",
        ]
    )


def _cells(one: dict[str, Any]) -> Sequence[str]:
    gain = one["gain"]
    return (
        f"{one['first_stage']['value']:.4f}",
        f"{one['reranked']['value']:.4f}",
        f"{gain['difference']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})",
        f"{gain['p']:.4f}",
    )


def _evaluate(system: System, task: RetrievalTask) -> QueryMeasures:
    run = rank(system, task.ids, task.query_ids, task.rows)
    return evaluate_per_query(run, task.ids, task.qrels)


def _words(text: str) -> Sequence[tuple[str, ...]]:
    return split_for_ranking(text).words


if __name__ == "__main__":
    typer.run(main)
