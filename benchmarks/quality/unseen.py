"""Which weights serve corpora that training has not seen, and what does each channel add?

The weights are chosen with each corpus left out, so that the figures of hybrid and semantic mode
are of corpora that chose no weight; those as shipped are of the weights of the checkpoint. Corpora
are folders as `benchmarks.quality.corpora` writes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.common import commit, markdown_table, publish
from benchmarks.quality.retrieval import KEPT_BLOCKS, CorpusPart, find_corpora
from encoder.alignment.space import at_equal_distances, fit_space
from encoder.arrays import Float32, Float64
from encoder.encoder import Encoder
from encoder.opening import find_encoder, open_encoder
from evaluation.baselines import BASELINES, mean_vectors
from evaluation.encoded_corpus import embed_encoded_corpus, keep_blocks
from evaluation.experiment import Vectors, baseline_systems, retrieval_task
from evaluation.fitting.fusion import (
    FusionCorpus,
    WeightSurface,
    choose_rule,
    fit_expected,
    hybrid_scores,
    measure_weights,
    score_corpus,
    semantic_mode_scores,
)
from evaluation.metrics import evaluate_per_query
from evaluation.significance import compare_paired
from evaluation.systems import lexical_system, rank_scores, vector_system
from index.corpus.reader import read_documents
from index.progress import SilentProgress
from index.search.score import ChannelWeights, StandardRule, read_fusion

MOST_QUERIES = 200  # of a corpus
USUAL = ("tfidf", "lsa", "bm25")  # hybrid mode is measured against the best of them
_BEST = "the best of " + ", ".join(USUAL)
CANDIDATES = (40, 200)  # of the first stage; most of the corpora have some 400 documents


@dataclass(frozen=True, slots=True)
class Measured:
    """One corpus: the scores of its channels, and the nDCG@10 of each query by system, Float64[Q].

    `recalls` has the share of relevant documents that a first stage finds, by what fetches them.
    """

    corpus: FusionCorpus
    ndcg: dict[str, Float64]
    recalls: dict[str, float]

    @property
    def best(self) -> float:
        """The nDCG@10 of the best usual baseline."""
        return max(float(self.ndcg[name].mean()) for name in USUAL)

    def of(self, scores: Float32) -> Float64:
        """Return the nDCG@10 of each query by scores Float32[Q, N]."""
        task = self.corpus.task
        run = rank_scores(scores, task.ids, task.query_ids)
        return evaluate_per_query(run, task.qrels).ndcg


def main(
    data: Annotated[Path, typer.Option(help="A folder of corpora.")],
    blocks: Annotated[Path, typer.Option(help="Folder that keeps block vectors.")] = KEPT_BLOCKS,
    name: Annotated[str, typer.Option("--encoder", help="As of `longmatch index`.")] = "best",
) -> None:
    """Choose the weights without each corpus in turn, and measure them there."""
    source = commit()
    encoder = open_encoder(find_encoder(name))
    measured = {}
    for corpus_part in find_corpora(data, "valid"):
        corpus = corpus_part.folder.name
        typer.echo(corpus, err=True)
        measured[corpus] = measure(corpus_part, blocks / corpus, encoder)
    settings = {"checkpoint": encoder.checkpoint.name, "fingerprint": encoder.fingerprint}
    publish("unseen", source, settings, study(measured, read_fusion(encoder.checkpoint)), table)


def measure(corpus_part: CorpusPart, blocks: Path, encoder: Encoder) -> Measured:
    """Score the queries of a corpus by every channel and baseline."""
    encoded = keep_blocks(corpus_part.corpus, blocks, encoder, SilentProgress())
    embedded = embed_encoded_corpus(encoded, encoder)
    documents = read_documents(corpus_part.corpus, embedded.ids)
    qrels = corpus_part.judgements()
    queries = [name for name in embedded.ids if name in qrels]
    chosen = {queries[row] for row in at_equal_distances(len(queries), MOST_QUERIES).tolist()}
    vectors = Vectors(embedded, embedded)
    task = retrieval_task(vectors, qrels, chosen)
    lexical = lexical_system([d.text for d in documents], [d.title for d in documents])
    found = Measured(score_corpus(embedded, task, lexical), {}, {})
    of_blocks = encoded.select(embedded.ids)
    for system in baseline_systems(BASELINES, vectors, [corpus_part.corpus], of_blocks):
        found.ndcg[system.name] = found.of(system.score(task.rows))
    means = mean_vectors(of_blocks, of_blocks.sizes)
    sample = means[np.arange(max(len(means), 2_000)) % len(means)]
    white = fit_space(sample).project  # rows are documents here, `MAX_BLOCKS` at a time
    projected = [white(means[start : start + 96]) for start in range(0, len(means), 96)]
    whitened = np.concatenate([part.codes * part.scales[:, None] for part in projected])
    hashed = embedded.vectors[:, embedded.vectors.shape[1] // 2 :]  # 768 of 1,536 numbers
    others = {
        "words alone": found.corpus.lexical,
        "words and the vector": found.corpus.vector,
        "words and the whitened mean": vector_system("", "", whitened).score(task.rows),
        "words and hashed words": vector_system("", "", hashed).score(task.rows),
    }
    found.ndcg["whitened mean"] = found.of(others["words and the whitened mean"])
    for number in CANDIDATES:
        for name, scores in others.items():
            share = _recall(found.corpus, [found.corpus.lexical, scores], number)
            found.recalls[f"{name}, {number}"] = share
    return found


def _recall(corpus: FusionCorpus, channels: Sequence[Float32], number: int) -> float:
    """Return the share of relevant documents among as many candidates of each channel."""
    task = corpus.task
    shares = []
    tops = [rank_scores(scores, task.ids, task.query_ids, number) for scores in channels]
    for name in task.query_ids:
        relevant = {document for document, rel in task.qrels[name].items() if rel > 0}
        merged: dict[str, None] = {}
        for rank in zip(*(top[name] for top in tops), strict=True):
            merged |= dict.fromkeys(rank)
        shares.append(len(relevant.intersection(list(merged)[:number])) / len(relevant))
    return float(np.mean(shares))


def study(measured: Mapping[str, Measured], shipped: StandardRule) -> dict[str, Any]:
    """Choose the weights with each corpus left out; report what they and the shipped find there."""
    found = list(measured.values())
    corpora = [each.corpus for each in found]
    line = fit_expected(corpora)
    surface = measure_weights(corpora, line)
    best = np.array([each.best for each in found])
    surface = WeightSurface(surface.hybrid / best[:, None, None], surface.semantic / best[:, None])
    together = choose_rule(surface, corpora, line)
    results: dict[str, Any] = {
        "all": _weights(together),
        "spreads": {**asdict(together.spreads), "line": line},
        "corpora": {},
    }
    gains: dict[str, list[Float64]] = {"hybrid": [], "hybrid as shipped": []}
    for number, (name, each) in enumerate(measured.items()):
        others = corpora[:number] + corpora[number + 1 :]
        rule = choose_rule(surface.without(number), others, line)
        values = {**each.ndcg, **_mode_ndcg(each, rule, shipped)}
        reference = max(USUAL, key=lambda system: values[system].mean())
        strongest = max(each.ndcg, key=lambda system: values[system].mean())
        tests = {
            f"hybrid - {other}": compare_paired(values["hybrid"], values[other])
            for other in dict.fromkeys(("lexical", reference, strongest))
        }
        as_shipped = compare_paired(values["hybrid as shipped"], values["lexical"])
        tests["hybrid as shipped - lexical"] = as_shipped
        for system, gained in gains.items():
            gained.append((values[system] - values["lexical"]) / each.best)
        results["corpora"][name] = {
            "documents": len(each.corpus.task.ids),
            "queries": len(each.corpus.task.query_ids),
            "weights": _weights(rule),
            "reference": reference,
            "ndcg": {system: float(array.mean()) for system, array in values.items()},
            "tests": {key: [t.difference, t.low, t.high, t.p] for key, t in tests.items()},
            "recalls": each.recalls,
        }
    results["all queries"] = {}
    for system, gained in gains.items():
        shares = np.concatenate(gained)
        test = compare_paired(shares, np.zeros_like(shares))
        results["all queries"][system] = [test.difference, test.low, test.high, test.p]
    return results


def _weights(rule: StandardRule) -> dict[str, float]:
    return {
        "alignment": rule.hybrid.alignment,
        "vector": rule.hybrid.vector,
        "vector in semantic mode": rule.semantic.vector,
    }


def _mode_ndcg(each: Measured, rule: StandardRule, shipped: StandardRule) -> dict[str, Float64]:
    """Return the nDCG@10 of the modes, of each channel alone, and of hybrid mode without one."""
    corpus, line = each.corpus, (rule.expected_slope, rule.expected_intercept)

    def hybrid(lexical: float, alignment: float, vector: float) -> Float64:
        weights = ChannelWeights(lexical, alignment, vector)
        changed = StandardRule(weights, rule.semantic, rule.spreads, *line)
        return each.of(hybrid_scores(corpus, changed.resolve(corpus.spreads)))

    chosen, served = rule.hybrid, shipped.resolve(corpus.spreads)
    return {
        "vector": each.of(corpus.vector),
        "alignment": hybrid(0.0, 1.0, 0.0),
        "lexical": each.of(corpus.lexical),
        "semantic": each.of(semantic_mode_scores(corpus, rule.resolve(corpus.spreads))),
        "hybrid": each.of(hybrid_scores(corpus, rule.resolve(corpus.spreads))),
        "hybrid without alignment": hybrid(1.0, 0.0, chosen.vector),
        "hybrid without the vector": hybrid(1.0, chosen.alignment, 0.0),
        "semantic as shipped": each.of(semantic_mode_scores(corpus, served)),
        "hybrid as shipped": each.of(hybrid_scores(corpus, served)),
    }


def table(record: dict[str, Any]) -> str:
    """Format the record as Markdown."""
    return "\n\n".join(_tables(record["results"]))


def _tables(results: dict[str, Any]) -> Iterator[str]:
    corpora = results["corpora"]
    ratios = {
        system: [
            each["ndcg"][system] / each["ndcg"][each["reference"]] for each in corpora.values()
        ]
        for system in next(iter(corpora.values()))["ndcg"]
    }
    rows = [
        [
            system,
            *(f"{each['ndcg'][system]:.4f}" for each in corpora.values()),
            f"{np.mean(values):.3f}",
            f"{min(values):.3f}",
        ]
        for system, values in ratios.items()
    ]
    yield f"nDCG@10, and share of {_BEST}"
    yield markdown_table(["system", *corpora, "mean", "least"], rows)
    yield "Differences in nDCG@10 (95 % interval, p of a paired randomisation test)"
    rows = [
        [name, each["documents"], each["queries"], key, _difference(values)]
        for name, each in corpora.items()
        for key, values in each["tests"].items()
    ]
    yield markdown_table(["corpus", "documents", "queries", "systems", "difference"], rows)
    for system, values in results["all queries"].items():
        yield f"All queries, {system} - lexical, as a share of {_BEST}: {_difference(values)}"
    yield "Weights, of words 1 in hybrid mode and of alignment 1 in semantic mode"
    chosen = {"none": results["all"], **{name: each["weights"] for name, each in corpora.items()}}
    yield markdown_table(
        ["left out", *results["all"]],
        [[name, *(f"{w:g}" for w in weights.values())] for name, weights in chosen.items()],
    )
    yield "Share of relevant documents among the first candidates"
    names = next(iter(corpora.values()))["recalls"]
    rows = [[n, *(f"{each['recalls'][n]:.4f}" for each in corpora.values())] for n in names]
    yield markdown_table(["fetched by", *corpora], rows)


def _difference(values: Sequence[float]) -> str:
    difference, low, high, p = values
    return f"{difference:+.4f} ({low:+.4f} to {high:+.4f}), p {p:.4f}"


if __name__ == "__main__":
    typer.run(main)
