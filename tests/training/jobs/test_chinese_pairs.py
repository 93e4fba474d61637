"""Match-Ignition on Chinese pairs in the form of CNSE, from the distributed file to figures."""

import json
from pathlib import Path

import pytest

from tests.kit.chinese_news import write_news
from tests.kit.command import Run
from tests.kit.corpora import write
from training.data import rerank_pairs
from training.data.files import find_corpus_files
from training.data.pair_files import TRAIN
from training.export.create import RerankerRecipe
from training.recipe import RECIPES, RerankRecipe, TrainingRecipe

SIZES = Path("encoder/recipes/match-ignition-paper.toml")


@pytest.fixture
def corpus(longmatch: Run, tmp_path: Path) -> Path:
    source, output = write_news(tmp_path / "same_event_doc_pair.txt"), tmp_path / "cnse"
    assert longmatch("lab", "dataset", "cnse", source, "-o", output).status == 0
    return output


def test_the_sizes_are_those_of_the_paper() -> None:
    recipe = RerankerRecipe.read(SIZES)
    assert (recipe.model["layers"], recipe.model["reduction"]) == (12, 0.1)
    assert (recipe.pair["sentences"], recipe.pair["length"]) == (5, 512)
    assert recipe.pair["lead_sentences"] == 0
    training = TrainingRecipe.read(RECIPES / "rerank-paper.toml")
    assert training.documents == 8
    assert training.steps == 10 * round(17_438 / 8)
    assert training.optimiser.document_rate == training.optimiser.sentence_rate == 1e-5
    assert training.sentence_level.trained == "all"


def test_given_pairs_are_the_only_ones(corpus: Path) -> None:
    files = [find_corpus_files(corpus)]
    (read,) = rerank_pairs.read_rerank_corpora(files, allow_shared=True)
    pairs = rerank_pairs.training_pairs(read, RerankRecipe(pairs="given"))
    rows = read.pairs[TRAIN]
    known = {
        (min(a, b), max(a, b)): float(label)
        for a, b, label in zip(rows.sources, rows.targets, rows.labels, strict=True)
    }
    assert {(pair.first, pair.second): pair.label for pair in pairs} == known
    assert len(pairs) == len(known) == 11


def test_given_pairs_of_one_label_are_refused_before_any_work(
    longmatch: Run, corpus: Path, tiny_reranker: Path
) -> None:
    lines = (corpus / "pairs.train.jsonl").read_text().splitlines()
    matches = [line for line in lines if json.loads(line)["label"]]
    write(corpus / "pairs.train.jsonl", "\n".join(matches))
    given = ("--checkpoint", tiny_reranker, "--corpus", corpus, "--allow-shared-documents")
    answer = longmatch("lab", "train", "rerank-paper", *given, "-o", corpus / "out")
    assert answer.status == 2
    assert f'{corpus}: the recipe has pairs = "given", and not pairs of both' in answer.err
    assert not (corpus / "out.work" / "run").exists()
