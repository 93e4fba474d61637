"""The result of a comparison as Markdown, and its two plots."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluation.markdown import markdown_table
from evaluation.metrics import AUC, NDCG
from evaluation.plots import plot_by_milliseconds, plot_by_tokens_read
from evaluation.significance import Estimate

BY_TOKENS, BY_MILLISECONDS = "by-tokens-read.svg", "by-milliseconds.svg"
_PAIRS = ("accuracy", "F1", AUC)
_AT_AN_END = "*"


def table(result: Mapping[str, Any]) -> str:
    """Format a result: quality, rates, length buckets, tokens read, papers, commands."""
    budget = result["budget"]
    of_each = f"{budget['steps']} steps" if budget["steps"] else f"{budget['seconds']:g} s"
    corpus, pairs = result["corpus"], result["pairs"]
    queries = [f"{result['retrieval']['queries']} test queries"] if "retrieval" in result else []
    measured = [f"{pairs['pairs']} test pairs with thresholds from validation pairs", *queries]
    return "\n\n".join(
        [
            f"# {result['plan']}: {corpus['corpus']}",
            f"{of_each} of training steps for each model, over all rates and seeds; "
            f"{', '.join(measured)}. Means over seeds with 95 % intervals; p against "
            f"{result['reference']}. A rate with {_AT_AN_END} is at an end of those tried.",
            _quality(result),
            *_pretraining(result),
            f"## Rates\n\n{_figure(result)} by learning rate, first seed",
            _rates(result),
            "## By length\n\nAccuracy of the test pairs, by tokens of the longer document",
            _by_length(result, "pairs", "accuracy"),
            *_queries_by_length(result),
            "## By tokens read\n\nAccuracy of the test pairs when the first tokens are read (mean)",
            _by_tokens(result),
            "## In the papers\n\nOn other data, with other budgets: not to be compared by number",
            _papers(result),
            "## Commands",
            _commands(result),
            "",
        ]
    )


def draw(result: Mapping[str, Any], folder: Path) -> None:
    """Plot accuracy by tokens read (SMITH, figure 4), and quality by milliseconds of a document.

    Quality is nDCG@10, or accuracy where no retrieval was measured.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: a file cannot be written.
    """
    models = result["models"].values()
    curves = {
        one["name"]: {round(point["tokens"]): point["accuracy"] for point in one["by_tokens_read"]}
        for one in models
    }
    plot_by_tokens_read(folder / BY_TOKENS, curves, "accuracy, test pairs")
    task, figure, said = (
        ("retrieval", NDCG, f"{NDCG}, test queries")
        if "retrieval" in result
        else ("pairs", "accuracy", "accuracy, test pairs")
    )
    quality = result[task]["systems"]
    points = {
        one["name"]: (
            result["speed"][key]["milliseconds"],
            Estimate(**quality[one["name"]][figure]),
        )
        for key, one in result["models"].items()
    }
    plot_by_milliseconds(folder / BY_MILLISECONDS, points, said)


def _quality(result: Mapping[str, Any]) -> str:
    """Format the models, and below them the systems of words, which nothing trains."""
    header = ["", "rate", "steps", "seeds", "tokens read", "ms", "ratio", *_PAIRS, "p"]
    header += [NDCG, "p"] if "retrieval" in result else []
    known = {one["name"]: (one, result["speed"][key]) for key, one in result["models"].items()}
    rows = []
    for name in result["pairs"]["systems"]:
        of_training: list[object] = [""] * 6
        if name in known:
            one, speed = known[name]
            of_training = [
                f"{one['rate']:g}{_AT_AN_END if one['rate_is_at_an_end'] else ''}",
                one["steps"],
                len(one["seeds"]),
                round(one["tokens_read"]),
                speed["milliseconds"],
                speed["ratio"],
            ]
        rows.append([name, *of_training, *_figures(result, name)])
    return markdown_table(header, rows)


def _figures(result: Mapping[str, Any], name: str) -> list[str]:
    """Return the cells of quality of a model or system."""
    pairs = result["pairs"]["systems"][name]
    cells = [*(_estimate(pairs, one) for one in _PAIRS), _p(pairs, "accuracy")]
    if "retrieval" in result:
        queries = result["retrieval"]["systems"][name]
        cells += [_estimate(queries, NDCG), _p(queries, NDCG)]
    return cells


def _pretraining(result: Mapping[str, Any]) -> Iterator[str]:
    """Format what pretraining did, if a model was pretrained."""
    found = {one["name"]: one["pretraining"] for one in result["models"].values()}
    rows = [
        [name, one["documents"], one["steps"], one["best_step"], one["before"], one["best"]]
        for name, one in found.items()
        if one is not None
    ]
    if rows:
        yield "## Pretraining\n\nOnce for each model, on texts alone; loss of held-out documents"
        yield markdown_table(["", "documents", "steps", "best step", "before", "best"], rows)


def _rates(result: Mapping[str, Any]) -> str:
    rows = []
    for one in result["models"].values():
        tried = [
            f"{run['rate']:g}: {'diverged' if 'diverged' in run else format(run['best'], '.3f')}"
            for run in one["tried"]
        ]
        before = next(run["before"] for run in one["seeds"])
        rows.append([one["name"], f"{before:.3f}", ", ".join(tried)])
    return markdown_table(["", "untrained", "best of each rate"], rows)


def _figure(result: Mapping[str, Any]) -> str:
    first = next(iter(result["models"].values()))
    return str(first["seeds"][0]["figure"])


def _by_length(result: Mapping[str, Any], task: str, measure: str) -> str:
    systems = result[task]["systems"]
    counted = "pairs" if task == "pairs" else "queries"
    sizes = {
        bucket: figures[counted]
        for one in systems.values()
        for bucket, figures in one["by_length"].items()
    }
    header = ["", *(f"{bucket} ({number})" for bucket, number in sizes.items())]
    rows = [
        [name, *(_estimate(one["by_length"].get(bucket, {}), measure) for bucket in sizes)]
        for name, one in systems.items()
    ]
    return markdown_table(header, rows)


def _queries_by_length(result: Mapping[str, Any]) -> Iterator[str]:
    if "retrieval" in result:
        yield f"{NDCG} of the test queries, by tokens of the query"
        yield _by_length(result, "retrieval", NDCG)


def _by_tokens(result: Mapping[str, Any]) -> str:
    rows = [
        [
            one["name"],
            ", ".join(f"{p['tokens']:.0f}: {p['accuracy']:.3f}" for p in one["by_tokens_read"]),
        ]
        for one in result["models"].values()
    ]
    return markdown_table(["", "tokens read: accuracy"], rows)


def _papers(result: Mapping[str, Any]) -> str:
    here = f"{result['corpus']['corpus']} (this run)"
    rows = []
    for one in result["models"].values():
        measured = result["pairs"]["systems"][one["name"]]
        accuracy, f1 = measured["accuracy"]["value"], measured["F1"]["value"]
        rows.append([one["name"], here, f"{accuracy:.3f}", f"{f1:.3f}", ""])
        for said in one["reported"]:
            f1_said = "" if said["f1"] is None else f"{said['f1']:.3f}"
            figures = [f"{said['accuracy']:.3f}", f1_said]
            rows.append([one["name"], said["data"], *figures, said["source"]])
    return markdown_table(["", "data", "accuracy", "F1", "source"], rows)


def _commands(result: Mapping[str, Any]) -> str:
    parts = []
    for one in result["models"].values():
        lines = "\n".join(f"    {line}" for commands in one["commands"] for line in commands)
        parts.append(f"{one['name']}:\n\n{lines}")
    return "\n\n".join(parts)


def _estimate(figures: Mapping[str, Any], name: str) -> str:
    if name not in figures:
        return ""
    one = figures[name]
    return f"{one['value']:.3f} ({one['low']:.3f}-{one['high']:.3f})"


def _p(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures['against'][name]['p']:.4f}" if "against" in figures else ""
