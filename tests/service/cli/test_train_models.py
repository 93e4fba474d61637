"""Models of papers from the command line: trained from tokens, exported and evaluated."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.models.plan import ENCODER_RECIPES
from encoder.checkpoint import load_checkpoint
from encoder.export.create import create_checkpoint, read_recipe
from encoder.models.colde import ColdeConfig
from encoder.onnx_encoder import OnnxEncoder
from index.progress import SilentProgress
from tests.tools.command import Run
from tests.tools.corpora import write_linked_corpus
from tests.tools.make_checkpoints import TINY_COLDE
from training.data.files import EncoderJob, find_corpus_files
from training.jobs.train_encoder import prepare_data, prepare_sources, run_training
from training.progress import SilentTrainingProgress
from training.recipe import RECIPES, read_training_recipe

RECIPE = """
name = "tiny"
steps = 2
documents = 6
max_blocks = 8
validation_interval = 1
checkpoint_interval = 1
[sentence_level]
trained = "all"
blocks = 8
[[objective]]
kind = "links"
"""

SHORTER = {
    "steps": 2,
    "documents": 4,
    "chunk": 4,
    "max_blocks": 8,
    "blocks": 8,
    "warm_up": 0,
    "validation_interval": 1,
    "checkpoint_interval": 1,
}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_linked_corpus(tmp_path / "corpus")


@pytest.mark.slow
def test_a_baseline_is_trained_exported_and_evaluated(
    longmatch: Run, corpus: Path, tiny_baseline: Callable[[str], Path], tmp_path: Path
) -> None:
    recipe, output, start = tmp_path / "tiny.toml", tmp_path / "out", tiny_baseline("smash")
    recipe.write_text(RECIPE)
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    finished = longmatch(*train, "--checkpoint", start)
    assert finished.status == 0, finished.err
    assert load_checkpoint(output).architecture == load_checkpoint(start).architecture
    assert json.loads((output / "training" / "report.json").read_text())["steps"] == 2
    judged = (corpus / "corpus.jsonl", corpus / "qrels.tsv")
    scores = longmatch("evaluate", *judged, "--checkpoint", output)
    assert scores.status == 0, scores.err


@pytest.mark.slow
def test_smith_is_pretrained_and_tuned_with_the_recipes_of_the_paper(
    longmatch: Run, corpus: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    write_pairs(corpus)
    start = tiny_checkpoint
    for name in ("smith-paper-pretrain", "smith-paper-pairs"):
        start = train_shorter(longmatch, name, corpus, start, tmp_path)


@pytest.mark.parametrize(
    ("architecture", "objective", "message"),
    [
        ("colde", 'kind = "sp"', "cannot predict masked sentence blocks"),
        ("colde", 'kind = "sections"\nparts = 4', "parts is above the 3 sections"),
        ("han", 'kind = "wp+sp"', "cannot predict masked sentence blocks"),
    ],
)
def test_the_recipe_of_another_architecture_is_refused_before_any_work(
    longmatch: Run,
    corpus: Path,
    tiny_baseline: Callable[[str], Path],
    tmp_path: Path,
    architecture: str,
    objective: str,
    message: str,
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text(RECIPE.replace('kind = "links"', objective))
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", tmp_path / "t")
    answer = longmatch(*train, "--checkpoint", tiny_baseline(architecture))
    assert answer.status == 2
    assert answer.err.startswith("error: RECIPE: ")
    assert message in " ".join(answer.err.split())
    assert not (tmp_path / "t.work").exists()


def test_a_reranker_takes_no_recipe_of_an_encoder(
    longmatch: Run, corpus: Path, tiny_reranker: Path, tmp_path: Path
) -> None:
    train = ("lab", "train", "adapt-links", "--checkpoint", tiny_reranker, "--corpus", corpus)
    answer = longmatch(*train, "-o", tmp_path / "t")
    assert answer.status == 2
    assert answer.err.startswith("error: --checkpoint: ")
    assert "config.json" in answer.err or "reranker" in answer.err
    assert not (tmp_path / "t.work").exists()


UNCUT = {"aggregate": "lstm", "positions": False}
SUPCON = '"supcon"\ngroups = "pairs"\nparts = 2\ntemperature = 0.5'


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ({}, SUPCON),
        (UNCUT, SUPCON.replace("2", "1")),  # CoLDE-Aug
        ({"aggregate": "embedded_mean"}, SUPCON),  # CoLDE-LSTM
        (UNCUT, '"pairs"\nloss = "cosine"'),  # CoLDE-CL
    ],
    ids=["whole", "without-augmentation", "without-lstm", "without-contrastive-loss"],
)
def test_colde_is_trained_with_the_recipe_of_the_paper_and_its_ablations(
    corpus: Path,
    tiny_colde: Path,
    tiny_bert: Path,
    tmp_path: Path,
    model: dict[str, object],
    objective: str,
) -> None:
    """As the command trains, without the export, which takes longer."""
    write_pairs(corpus)
    changed = TINY_COLDE.model_copy(update={"model": TINY_COLDE.model | model})
    start = create_checkpoint(changed, str(tiny_bert), tmp_path / "start")
    recipe = shorter("colde-paper", tmp_path)
    text = recipe.read_text()
    assert SUPCON in text
    recipe.write_text(text.replace(SUPCON, objective))
    job = EncoderJob(
        recipe=recipe,
        start=start,
        files=[find_corpus_files(corpus)],
        output=tmp_path / "out",
        work=tmp_path / "work",
        precisions=["fp32"],
    )
    encoder = OnnxEncoder(load_checkpoint(tiny_colde), precision="fp32", threads=1)
    data = prepare_data(job, encoder, SilentProgress())
    sources = prepare_sources(job, data, SilentProgress())
    trained = run_training(job, data, sources, SilentTrainingProgress())
    assert trained.report.steps == 2
    (curve,) = (tmp_path / "work").rglob("curve.jsonl")
    kind = objective.split('"')[1]
    losses = [json.loads(line).get(f"loss.{kind}") for line in curve.read_text().splitlines()]
    assert len([loss for loss in losses if loss is not None and math.isfinite(loss)]) == 2


def write_pairs(corpus: Path) -> None:
    """Write pairs of both labels beside the corpus, no document in two."""
    pairs = [
        {"source": f"d{number}", "target": f"d{number + 1}", "label": (number // 2) % 2}
        for number in range(0, 24, 2)
    ]
    (corpus / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))


def shorter(name: str, folder: Path) -> Path:
    """Write a recipe that ships, shorter: two steps of four documents of 8 blocks."""
    text = (RECIPES / f"{name}.toml").read_text()
    for field, value in SHORTER.items():
        text, changed = re.subn(rf"^{field} = .*$", f"{field} = {value}", text, flags=re.M)
        assert changed == 1 or field == "warm_up"
    (recipe := folder / f"{name}.toml").write_text(text)
    return recipe


def train_shorter(longmatch: Run, name: str, corpus: Path, start: Path, folder: Path) -> Path:
    """Train from the command line with a shorter recipe, and return the new checkpoint."""
    recipe, output = shorter(name, folder), folder / name
    train = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    finished = longmatch(*train, "--checkpoint", start)
    assert finished.status == 0, finished.err
    assert json.loads((output / "training" / "report.json").read_text())["steps"] == 2
    return output


def test_the_recipes_of_the_paper_have_its_settings() -> None:
    for name, kind in (("smith-paper-pretrain", "wp+sp"), ("smith-paper-pairs", "pairs")):
        recipe = read_training_recipe(RECIPES / f"{name}.toml")
        optimiser = recipe.optimiser
        assert [objective.kind for objective in recipe.objectives] == [kind]
        assert (recipe.documents, recipe.max_blocks, recipe.dropout) == (32, 48, 0.1)
        assert optimiser.document_rate == optimiser.sentence_rate == 5e-5
        assert optimiser.epsilon == 1e-6


def test_the_recipes_of_colde_have_the_settings_of_its_paper() -> None:
    recipe = read_training_recipe(RECIPES / "colde-paper.toml")
    (objective,) = recipe.objectives
    assert (objective.kind, objective.parameters["temperature"]) == ("supcon", 0.5)
    assert recipe.documents == 50 * objective.parameters["parts"]
    optimiser = recipe.optimiser
    assert optimiser.document_rate == optimiser.sentence_rate == 5e-5
    assert optimiser.weight_decay == 0.01
    assert recipe.sentence_level.trained == "all"
    # 25 epochs of AAN: 80 % of 12,665 documents in batches of 50
    assert recipe.steps == 25 * math.ceil(0.8 * 12_665 / 50) == 25 * recipe.validation_interval
    encoder = read_recipe(ENCODER_RECIPES / "colde-paper.toml")
    fields = {"block_length": encoder.block_length, "dimension": encoder.dimension}
    made = ColdeConfig(**fields, max_blocks=encoder.max_blocks, **encoder.model)
    assert made == ColdeConfig()  # whose defaults are the paper's
