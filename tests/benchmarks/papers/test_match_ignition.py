"""The tables of the Match-Ignition paper, row by row, on Chinese pairs in the form of CNSE."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks.common import RESULTS
from benchmarks.papers import match_ignition
from benchmarks.papers.match_ignition_rows import ROWS, table
from encoder.export.create import read_reranker_recipe
from encoder.reranker.checkpoint import load_reranker_checkpoint
from index.progress import SilentProgress
from tests.tools.chinese_news import write_news
from tests.tools.corpora import write
from training.comparison.plan import ENCODER_RECIPES
from training.data.files import RerankJob, find_corpus_files
from training.datasets.convert import convert_dataset
from training.errors import TrainingRecipeError
from training.jobs.train_reranker import train_reranker
from training.progress import SilentTrainingProgress
from training.recipe import RECIPES

START, RECIPE = ENCODER_RECIPES / "match-ignition-paper.toml", RECIPES / "rerank-paper.toml"


def test_rows_are_those_of_the_tables() -> None:
    recipe = read_reranker_recipe(START)
    settings = {}
    for key, row in ROWS.items():
        made = match_ignition.changed(recipe, row)
        read = made.pair.get("filtered", True)
        settings[key] = (read, made.model["reduction"], made.model["importance"])
    assert settings == {
        "both": (True, 0.1, "pagerank"),
        "sentences": (True, 0.0, "pagerank"),
        "words": (False, 0.1, "pagerank"),
        "neither": (False, 0.0, "pagerank"),
        "share-5": (True, 0.05, "pagerank"),
        "share-20": (True, 0.2, "pagerank"),
        "random": (True, 0.1, "random"),
        "norm": (True, 0.1, "norm"),
        "attention": (True, 0.1, "attention"),
    }
    cell = {"accuracy": 0.5, "F1": 0.25, "AUC": 0.75, "ms_per_batch": 12.0}
    record = {"settings": {"corpus": "cnse", "pairs": 7}, "results": {"words": cell}}
    (row,) = [line for line in table(record).splitlines() if "word filter" in line]
    cells = [one.strip() for one in row.split("|")[1:-1]]
    assert cells[2:] == ["0.500", "0.250", "0.750", "12", "0.8031", "0.7639", "0.9110", "0.9118"]


@pytest.mark.slow
def test_rows_are_trained_measured_and_kept(
    tiny_bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    news, corpus, work = write_news(tmp_path / "news.txt"), tmp_path / "cnse", tmp_path / "work"
    convert_dataset("cnse", news, corpus, 0, SilentProgress())
    start = START.read_text().replace("layers = 12", "layers = 2")
    start = start.replace("length = 512", "length = 64").replace("sentences = 5", "sentences = 2")
    recipe = RECIPE.read_text().replace("= 2_180", "= 2").replace("= 500", "= 2")
    files = {
        "start": write(tmp_path / "start.toml", start),
        "recipe": write(tmp_path / "recipe.toml", recipe.replace("tokens = 512", "tokens = 64")),
    }
    written: list[dict[str, Any]] = []
    monkeypatch.setattr(match_ignition, "write_record", written.append)
    match_ignition.main(corpus, tiny_bert, work, ",".join(ROWS), 2, **files)
    cells = written[0]["results"]
    assert list(cells) == list(ROWS)
    assert all(cell.keys() == {"AUC", "ms_per_batch", "accuracy", "F1"} for cell in cells.values())
    made = load_reranker_checkpoint(work / "neither" / "trained")
    assert (made.pair.filtered, made.model["reduction"]) == (False, 0.0)
    report = json.loads((made.directory / "training" / "report.json").read_text())
    assert (report["steps"], report["shared_documents"]) == (2, True)

    by_chance = load_reranker_checkpoint(work / "random" / "start")
    job = RerankJob(
        recipe=files["recipe"],
        start=by_chance,
        files=[find_corpus_files(corpus)],
        output=tmp_path / "out",
        work=tmp_path / "out.work",
        precisions=["fp32"],
        allow_shared=True,
    )
    with pytest.raises(TrainingRecipeError, match="drops other words each time: no graph"):
        train_reranker(job, SilentProgress(), SilentTrainingProgress())
    assert not job.work.exists()

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is trained again")

    monkeypatch.setattr(match_ignition, "train_reranker", refuse)
    match_ignition.main(corpus, tiny_bert, work, "both,words", 2, **files)
    assert written[1]["results"] == {key: cells[key] for key in ("both", "words")}
    with pytest.raises(typer.BadParameter, match="is of other work: steps differs"):
        match_ignition.main(corpus, tiny_bert, work, "both", 3, **files)
    with pytest.raises(typer.BadParameter, match="'all' is none of both, sentences"):
        match_ignition.main(corpus, tiny_bert, work, "all", 2, **files)
    assert not list(RESULTS.glob("match-ignition-trained-*"))
