"""The result of an experiment as Markdown, and its plot; needs no torch."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common import markdown_table
from evaluation.metrics import AUC, NDCG
from index.optional_dependencies import require_extra

BENCHMARK = "models"
BY_TOKENS = "by-tokens-read.svg"
_PAIRS = ("accuracy", "F1", AUC)
_AT_AN_END = "*"
_SIZE = (6.4, 4.0)  # inches
_SALT = "longmatch"  # without it, matplotlib makes the ids of an SVG at random


def format_result(result: Mapping[str, Any]) -> str:
    """Format a result: quality, pretraining, rates, tokens read, papers."""
    steps, seconds = result["budget"]["steps"], result["budget"]["seconds"]
    budget = (
        f"{steps} steps of training in each run"
        if steps
        else f"{seconds:g} s of training steps for each model, over all rates and seeds"
    )
    corpus, pairs = result["corpus"], result["pairs"]
    queries = [f"{result['retrieval']['queries']} test queries"] if "retrieval" in result else []
    measured = [f"{pairs['pairs']} test pairs with thresholds from validation pairs", *queries]
    return "\n\n".join(
        [
            f"# {result['plan']}: {corpus['corpus']}",
            f"{budget}; {', '.join(measured)}. Means over seeds with 95 % intervals; p against "
            f"{result['reference']}. A rate with {_AT_AN_END} is at an end of those tried.",
            _quality(result),
            *_pretraining(result),
            *_rates(result),
            *_by_tokens(result),
            *_papers(result),
            "",
        ]
    )


def draw(result: Mapping[str, Any], folder: Path) -> None:
    """Plot accuracy by tokens read (SMITH, figure 4): the same figures give the same bytes."""
    require_extra("evaluate", "a plot", "matplotlib")
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    ticks: set[int] = set()
    for model in result["models"].values():
        curve = {round(p["tokens"]): p["accuracy"] for p in model["by_tokens_read"]}
        axes.plot(sorted(curve), [curve[t] for t in sorted(curve)], marker="o", label=model["name"])
        ticks |= curve.keys()
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), [f"{tokens:,}" for tokens in sorted(ticks)], rotation=45)
    axes.minorticks_off()
    axes.set(xlabel="tokens read of each document", ylabel="accuracy, test pairs")
    axes.legend(fontsize="small")
    with mpl.rc_context({"svg.hashsalt": _SALT}):
        figure.savefig(folder / BY_TOKENS, format="svg", metadata={"Date": None, "Creator": None})


def _quality(result: Mapping[str, Any]) -> str:
    """Format the models, and below them the systems of words, which nothing trains."""
    header = ["", "rate", "steps", "seeds", "tokens read", *_PAIRS, "p"]
    header += [NDCG, "p"] if "retrieval" in result else []
    known = {model["name"]: model for model in result["models"].values()}
    rows = []
    for name in result["pairs"]["systems"]:
        of_training: list[object] = [""] * 4
        if name in known:
            model = known[name]
            of_training = [
                f"{model['rate']:g}{_AT_AN_END if model['rate_is_at_an_end'] else ''}",
                model["steps"],
                len(model["seeds"]),
                round(model["tokens_read"]),
            ]
        rows.append([name, *of_training, *_figures(result, name)])
    return markdown_table(header, rows)


def _figures(result: Mapping[str, Any], name: str) -> list[str]:
    """Return the cells of quality of a model or system."""
    pairs = result["pairs"]["systems"][name]
    cells = [*(_estimate(pairs, measure) for measure in _PAIRS), _p(pairs, "accuracy")]
    if "retrieval" in result:
        queries = result["retrieval"]["systems"][name]
        cells += [_estimate(queries, NDCG), _p(queries, NDCG)]
    return cells


def _pretraining(result: Mapping[str, Any]) -> Iterator[str]:
    """Format what pretraining did, if a model was pretrained."""
    columns = ("seed", "documents", "steps", "best_step", "before", "best")
    rows = [
        [model["name"], *(run[column] for column in columns)]
        for model in result["models"].values()
        for run in model["pretraining"]
    ]
    if rows:
        yield "## Pretraining\n\nOn texts alone; loss of held-out documents"
        yield markdown_table(["", *(column.replace("_", " ") for column in columns)], rows)


def _rates(result: Mapping[str, Any]) -> Iterator[str]:
    rows, figure = [], ""
    for model in result["models"].values():
        tried = [
            f"{run['rate']:g}: {'diverged' if 'diverged' in run else format(run['best'], '.3f')}"
            for run in model["tried"]
        ]
        if tried:
            first = model["seeds"][0]
            figure = first["figure"]
            rows.append([model["name"], f"{first['before']:.3f}", ", ".join(tried)])
    if rows:
        yield f"## Rates\n\n{figure} by learning rate, first seed"
        yield markdown_table(["", "untrained", "best of each rate"], rows)


def _by_tokens(result: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        [
            model["name"],
            ", ".join(f"{p['tokens']:.0f}: {p['accuracy']:.3f}" for p in model["by_tokens_read"]),
        ]
        for model in result["models"].values()
        if model["by_tokens_read"]
    ]
    if rows:
        yield "## By tokens read\n\nAccuracy of the test pairs when the first tokens are read"
        yield markdown_table(["", "mean of the tokens: accuracy"], rows)


def _papers(result: Mapping[str, Any]) -> Iterator[str]:
    """Format what papers report of the models, if they report anything."""
    here = f"{result['corpus']['corpus']} (this run)"
    rows = []
    for model in result["models"].values():
        if model["reported"]:
            measured = result["pairs"]["systems"][model["name"]]
            accuracy, f1 = measured["accuracy"]["value"], measured["F1"]["value"]
            rows.append([model["name"], here, f"{accuracy:.3f}", f"{f1:.3f}", ""])
        for reported in model["reported"]:
            f1 = "" if reported["f1"] is None else f"{reported['f1']:.3f}"
            figures = [f"{reported['accuracy']:.3f}", f1]
            rows.append([model["name"], reported["data"], *figures, reported["source"]])
    if rows:
        yield "## In the papers\n\nOn other data, with other budgets: not to be compared by number"
        yield markdown_table(["", "data", "accuracy", "F1", "source"], rows)


def _estimate(figures: Mapping[str, Any], name: str) -> str:
    if name not in figures:
        return ""
    estimate = figures[name]
    return f"{estimate['value']:.3f} ({estimate['low']:.3f}-{estimate['high']:.3f})"


def _p(figures: Mapping[str, Any], name: str) -> str:
    return f"{figures['against'][name]['p']:.4f}" if "against" in figures else ""
