"""`longmatch lab train` as a user types it, on tiny checkpoints and tiny corpora."""

import json
import math
import random
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import evaluation.quality_gate
from benchmarks.models.plan import ENCODER_RECIPES
from encoder.checkpoint import QUALITY, load_checkpoint
from encoder.checkpoint import TERMS as TERMS_FILE
from encoder.onnx_encoder import OnnxEncoder
from evaluation.block_archive import read_block_archive
from evaluation.quality_gate import read_stdlib
from index.progress import SilentProgress
from tests.kit.command import Run
from tests.kit.corpora import (
    TOPIC_WORDS,
    write_linked_corpus,
    write_pairs,
    write_topics,
)
from tests.kit.forking import Forked
from tests.kit.make_checkpoints import TINY_COLDE
from training.data.files import EncoderJob, find_corpus_files
from training.data.sampling import find_sources
from training.export import create
from training.jobs.train_encoder import prepare_data, run_training
from training.models.colde import ColdeConfig
from training.progress import TrainingProgress
from training.recipe import RECIPES, TrainingRecipe

FIELDS: dict[str, object] = {
    "name": '"tiny"', "steps": 2, "documents": 12, "chunk": 8, "max_blocks": 8,
    "validation_interval": 1, "checkpoint_interval": 1,
}  # fmt: skip
UNLABELLED = """
[[objective]]
kind = "distil"
[[objective]]
kind = "halves"
hard_negatives = 1
[[objective]]
kind = "sp"
masked_blocks = 1
"""
LINKS = """
[[objective]]
kind = "links"
hard_negatives = 1
temperature = "learned"
[[objective]]
kind = "supcon"
"""
TERMS = """
[terms]
dimension = 4
buckets = 32
span = 4
"""
PAIRS = '[[objective]]\nkind = "pairs"\n'
HALVES = '[[objective]]\nkind = "halves"\n'
FROM_TOKENS = '[sentence_level]\ntrained = "all"\nblocks = 8\n'
WORDS_TOO = '[sentence_level]\ntrained = "last"\nlayers = 1\nblocks = 2\n'
REORDER = '[[objective]]\nkind = "reorder"\nchunks = 3\n'
SECTIONS = '[[objective]]\nkind = "sections"\nparts = 3\n'
CONTRAST = SECTIONS.replace("sections", "supcon")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_topics(folder / "corpus.jsonl", 40)
    return folder


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    return write_linked_corpus(tmp_path / "corpus")


@pytest.fixture
def headed(tmp_path: Path) -> Path:
    """Documents with headings and without."""
    random = np.random.default_rng(4)
    path = tmp_path / "corpus.jsonl"
    with path.open("w") as file:
        for number in range(24):
            topics = random.choice(TOPIC_WORDS, size=3)
            parts = [" ".join(f"The {word} is there." for word in topics) for _ in range(3)]
            headed = "\n\n".join(f"# Part {n}\n\n{part}" for n, part in enumerate(parts))
            text = headed if number % 2 else " ".join(parts)
            record = {"id": f"d{number}", "text": f"{text} Own{number}."}
            file.write(json.dumps(record) + "\n")
    return path


@pytest.fixture
def starts(copy_checkpoint: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return the tiny checkpoint of an architecture."""
    return cache(copy_checkpoint)


Recipe = Callable[..., Path]


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Return a function that writes a recipe of some sections, with other fields."""

    def write(sections: str, **fields: object) -> Path:
        lines = [f"{name} = {value}" for name, value in (FIELDS | fields).items()]
        path = tmp_path / "recipe.toml"
        path.write_text("\n".join([*lines, "[optimiser]", "document_rate = 1e-3", sections]))
        return path

    return write


def train(
    longmatch: Run, recipe: Path, corpus: Path, output: Path, *options: object
) -> dict[str, object]:
    """Train without a smaller precision, and return the report."""
    run = ("lab", "train", recipe, "--corpus", corpus, "-o", output, "--precision", "fp32")
    answer = longmatch(*run, *options)
    assert answer.status == 0, answer.err
    report: dict[str, object] = json.loads((output / "training" / "report.json").read_text())
    return report


def add_splits_links_and_pairs(folder: Path) -> None:
    parts = ["train", "train", "train", "valid"]
    (folder / "splits.tsv").write_text("".join(f"d{n}\t{parts[n % 4]}\n" for n in range(40)))
    links = ((n, (n + step) % 40) for n in range(40) for step in (4, 8))
    (folder / "qrels.tsv").write_text("".join(f"d{a}\t0\td{b}\t1\n" for a, b in links))
    pairs = ((f"d{n}", f"d{(n + 4) % 40}", n // 4 % 2) for n in range(40))
    write_pairs(folder / "pairs.jsonl", pairs)


@pytest.mark.slow
@pytest.mark.parametrize("terms", ["", TERMS], ids=["blocks", "terms"])
def test_killed_and_resumed_gives_the_same_curve(
    longmatch: Run,
    start_longmatch: Callable[..., Forked],
    tiny_checkpoint: Path,
    corpus: Path,
    recipe: Recipe,
    tmp_path: Path,
    terms: str,
) -> None:
    file = recipe(UNLABELLED + terms, steps=60, validation_interval=2, checkpoint_interval=2)
    train(longmatch, file, corpus, tmp_path / "whole")
    arguments = ["lab", "train", file, "--corpus", corpus, "-o", tmp_path / "killed"]
    arguments += ["--precision", "fp32"]
    job = start_longmatch(*arguments, checkpoint=tiny_checkpoint)
    while not (tmp_path / "killed.work" / "run" / "state.safetensors").exists():
        assert job.poll() is None
        time.sleep(0.005)
    job.kill()
    job.wait()
    assert not (tmp_path / "killed").exists()
    again = longmatch(*arguments)
    assert again.status == 0, again.err
    assert "training: resuming after" in again.err
    curves = [tmp_path / name / "training" / "curve.jsonl" for name in ("whole", "killed")]
    assert curves[0].read_text() == curves[1].read_text()
    fingerprints = {load_checkpoint(tmp_path / name).fingerprint for name in ("whole", "killed")}
    assert len(fingerprints) == 1
    assert fingerprints != {load_checkpoint(tiny_checkpoint).fingerprint}
    trained = load_checkpoint(tmp_path / "killed")
    assert trained.dimension == (36 if terms else 32)
    assert (TERMS_FILE in trained.files) == bool(terms)


@pytest.mark.parametrize(
    ("objectives", "figure"),
    [
        (LINKS, "nDCG@10"),
        pytest.param(PAIRS, "nDCG@10", marks=pytest.mark.slow),
        pytest.param(
            '[[objective]]\nkind = "wp"\n' + WORDS_TOO + TERMS + LINKS,
            "nDCG@10",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["links", "pairs", "words"],
)
def test_train_then_serve(
    longmatch: Run, corpus: Path, recipe: Recipe, tmp_path: Path, objectives: str, figure: str
) -> None:
    add_splits_links_and_pairs(corpus)
    file = recipe(objectives, steps=6, validation_interval=2, checkpoint_interval=2)
    arguments = ("lab", "train", file, "--corpus", corpus, "-o", tmp_path / "t")
    answer = longmatch(*arguments, "--precision", "fp32")
    assert answer.status == 0, answer.err
    assert "30 train, 10 valid" in answer.err
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert report["figure"].startswith(figure)
    assert report["best"] >= report["before"]
    assert (report["steps"], report["stopped"]) == (6, "steps")
    assert load_checkpoint(tmp_path / "t").dimension == (36 if TERMS in objectives else 32)
    trained_blocks = "sentence_level" in objectives
    assert (report["search"] is None) == trained_blocks
    if report["search"]:
        assert not report["search"]["fitted"]  # by ten queries at most
        assert 0 < report["search"]["after"]["hybrid"] <= 1
        assert "Search, nDCG@10 of" in answer.err
    vectors = tmp_path / "v.npz"
    embedded = longmatch("lab", "embed", corpus, "-o", vectors, "--encoder", tmp_path / "t")
    assert embedded.status == 0, embedded.err


@pytest.mark.slow
def test_own_pairs_alone(longmatch: Run, corpus: Path, recipe: Recipe, tmp_path: Path) -> None:
    rows = ((f"d{a}", f"d{b}", (a + b) % 2) for a in range(40) for b in range(a))
    pairs = write_pairs(tmp_path / "mine.jsonl", rows)
    report = train(
        longmatch, recipe(PAIRS, steps=6), corpus, tmp_path / "t", "--pairs", pairs, "--steps", 2
    )
    assert str(report["figure"]).startswith("AUC")
    assert report["steps"] == 2


@pytest.mark.slow
def test_pairs_whose_parts_share_documents(
    longmatch: Run, corpus: Path, recipe: Recipe, tmp_path: Path
) -> None:
    rows = [(a, b) for a in range(12) for b in range(a)]
    for part, some in (("train", rows[::2]), ("valid", rows[1::2])):
        pairs = ((f"d{a}", f"d{b}", (a * b) % 2) for a, b in some)
        write_pairs(corpus / f"pairs.{part}.jsonl", pairs)
    run = ("lab", "train", recipe(PAIRS), "--corpus", corpus, "-o", tmp_path / "t", "--steps", 2)
    run += ("--precision", "fp32")
    refused = longmatch(*run)
    assert refused.status == 2
    assert "--allow-shared-documents trains nevertheless" in refused.err
    assert not (tmp_path / "t.work").exists()
    answer = longmatch(*run, "--allow-shared-documents")
    assert answer.status == 0, answer.err
    assert "training sees 12 held-out texts: validation is optimistic" in answer.err
    assert "(optimistic: training may have seen the documents of validation)" in answer.err
    report = json.loads((tmp_path / "t" / "training" / "report.json").read_text())
    assert report["shared_documents"]
    facts = report["corpora"][0]
    assert facts["texts_seen"] == 12
    assert sum(map(sum, facts["pairs"].values())) == len(rows)
    assert facts["pairs_unused"] == 0


@pytest.mark.slow
def test_the_time_is_up(longmatch: Run, corpus: Path, recipe: Recipe, tmp_path: Path) -> None:
    report = train(longmatch, recipe(UNLABELLED), corpus, tmp_path / "t", "--minutes", 0)
    assert (report["stopped"], report["steps"]) == ("time", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "documents", "sections"),
    [
        ("smith", "linked", FROM_TOKENS + '[[objective]]\nkind = "links"\n'),
        ("colde", "headed", CONTRAST),
        ("colde", "headed", FROM_TOKENS.replace("8", "2") + SECTIONS),
        *(("smith", "headed", SECTIONS), ("terms", "headed", HALVES)),
        ("ernie-doc", "linked", FROM_TOKENS + REORDER),
        ("ernie-doc", "linked", WORDS_TOO.replace("blocks = 2", "blocks = 8") + LINKS),
    ],
)
def test_each_architecture_is_trained_and_served(
    longmatch: Run,
    request: pytest.FixtureRequest,
    recipe: Recipe,
    starts: Callable[[str], Path],
    tmp_path: Path,
    architecture: str,
    documents: str,
    sections: str,
) -> None:
    corpus: Path = request.getfixturevalue(documents)
    start, output = starts(architecture), tmp_path / "out"
    precision = '"bf16"' if architecture == "ernie-doc" else '"fp32"'
    file = recipe(sections, chunk=5, precision=precision)
    assert train(longmatch, file, corpus, output, "--checkpoint", start)["steps"] == 2
    trained, before = load_checkpoint(output), load_checkpoint(start)
    assert (trained.architecture, trained.model) == (before.architecture, before.model)
    assert trained.fingerprint != before.fingerprint
    kind = re.findall('kind = "(.*)"', sections)[-1]
    assert f'"loss.{kind}"' in (output / "training" / "curve.jsonl").read_text()
    vectors = tmp_path / "v.npz"
    assert longmatch("lab", "embed", corpus, "-o", vectors, "--encoder", output).status == 0
    with np.load(vectors) as arrays:
        assert arrays["vectors"].shape == (24, trained.dimension)
    assert longmatch("index", corpus, "--encoder", output).status == 0
    if architecture == "ernie-doc":
        (archive,) = (tmp_path / "out.work").glob("*/tokens")
        assert read_block_archive(archive).vectors(0).shape[1] == 0  # none was computed
    if documents == "linked":
        judged = (corpus / "corpus.jsonl", corpus / "qrels.tsv")
        scores = longmatch("evaluate", *judged, "--encoder", output)
        assert scores.status == 0, scores.err


@pytest.mark.slow
def test_smith_is_trained_with_the_recipes_of_the_paper(
    longmatch: Run, linked: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    write_labelled(linked)
    start = tiny_checkpoint
    for name in ("smith-paper-pretrain", "smith-paper-pairs"):
        output = tmp_path / name
        file = shorter(name, tmp_path)
        assert train(longmatch, file, linked, output, "--checkpoint", start)["steps"] == 2
        start = output


@pytest.mark.parametrize(
    ("architecture", "sections", "message"),
    [
        ("colde", FROM_TOKENS + '[[objective]]\nkind = "sp"', "cannot predict masked sentence"),
        ("colde", SECTIONS.replace("3", "4"), "parts is above the 3 sections"),
        ("ernie-doc", LINKS, "takes stored block vectors"),
    ],
)
def test_a_wrong_recipe_is_refused_before_any_work(
    longmatch: Run,
    linked: Path,
    recipe: Recipe,
    starts: Callable[[str], Path],
    tmp_path: Path,
    architecture: str,
    sections: str,
    message: str,
) -> None:
    run = ("lab", "train", recipe(sections), "--corpus", linked, "-o", tmp_path / "t")
    answer = longmatch(*run, "--checkpoint", starts(architecture))
    assert answer.status == 2
    assert answer.err.startswith("error: RECIPE: ")
    assert message in " ".join(answer.err.split())
    assert not (tmp_path / "t.work").exists()


SHORTER = {
    "steps": 2, "documents": 4, "chunk": 4, "max_blocks": 8, "blocks": 8, "warm_up": 0,
    "validation_interval": 1, "checkpoint_interval": 1,
}  # fmt: skip


UNCUT = {"aggregate": "lstm", "positions": False}
SUPCON = '"supcon"\ngroups = "pairs"\nparts = 2\ntemperature = 0.5'


@pytest.mark.parametrize(
    ("model", "objective"),
    [
        ({}, SUPCON),
        ({"aggregate": "embedded_mean"}, SUPCON),  # CoLDE-LSTM
        (UNCUT, '"pairs"\nloss = "cosine"'),  # CoLDE-CL
    ],
    ids=["whole", "without-lstm", "without-contrastive-loss"],
)
def test_colde_is_trained_with_the_ablations_of_its_paper(
    linked: Path,
    tiny_colde: Path,
    tiny_bert: Path,
    tmp_path: Path,
    model: dict[str, object],
    objective: str,
) -> None:
    """As the command trains, without the export, which takes longer."""
    write_labelled(linked)
    changed = TINY_COLDE.model_copy(update={"model": TINY_COLDE.model | model})
    start = create.create_checkpoint(changed, str(tiny_bert), tmp_path / "start")
    recipe = shorter("colde-paper", tmp_path)
    text = recipe.read_text()
    assert SUPCON in text
    recipe.write_text(text.replace(SUPCON, objective))
    job = EncoderJob(
        recipe=recipe, start=start, files=[find_corpus_files(linked)], output=tmp_path / "out",
        work=tmp_path / "work", precisions=["fp32"],
    )  # fmt: skip
    encoder = OnnxEncoder(load_checkpoint(tiny_colde), precision="fp32", threads=1)
    data = prepare_data(job, encoder, SilentProgress())
    sources = find_sources(TrainingRecipe.read(job.recipe), job.start, data, SilentProgress())
    trained = run_training(job, data, sources, TrainingProgress())
    assert trained.report.steps == 2
    (curve,) = (tmp_path / "work").rglob("curve.jsonl")
    kind = objective.split('"')[1]
    losses = [json.loads(line).get(f"loss.{kind}") for line in curve.read_text().splitlines()]
    assert len([loss for loss in losses if loss is not None and math.isfinite(loss)]) == 2


def write_labelled(corpus: Path) -> None:
    """Write pairs of both labels beside the corpus, no document in two."""
    pairs = ((f"d{n}", f"d{n + 1}", (n // 2) % 2) for n in range(0, 24, 2))
    write_pairs(corpus / "pairs.jsonl", pairs)


def shorter(name: str, folder: Path) -> Path:
    """Write a recipe that ships, shorter: two steps of four documents of 8 blocks."""
    text = (RECIPES / f"{name}.toml").read_text()
    for field, value in SHORTER.items():
        text, changed = re.subn(rf"^{field} = .*$", f"{field} = {value}", text, flags=re.M)
        assert changed == 1 or field == "warm_up"
    (recipe := folder / f"{name}.toml").write_text(text)
    return recipe


def test_the_recipes_of_papers_have_their_settings() -> None:
    for name, kind in (("smith-paper-pretrain", "wp+sp"), ("smith-paper-pairs", "pairs")):
        recipe = TrainingRecipe.read(RECIPES / f"{name}.toml")
        assert [objective.kind for objective in recipe.objectives] == [kind]
        documents = 32 * (2 if kind == "pairs" else 1)  # both of a pair count
        assert (recipe.documents, recipe.max_blocks, recipe.dropout) == (documents, 48, 0.1)
        assert recipe.optimiser.document_rate == recipe.optimiser.sentence_rate == 5e-5
        assert recipe.optimiser.epsilon == 1e-6
    recipe = TrainingRecipe.read(RECIPES / "colde-paper.toml")
    (objective,) = recipe.objectives
    assert (objective.kind, objective.parameters["temperature"]) == ("supcon", 0.5)
    assert recipe.documents == 50 * objective.parameters["parts"]
    optimiser = recipe.optimiser
    assert optimiser.document_rate == optimiser.sentence_rate == 5e-5
    assert optimiser.weight_decay == 0.01
    assert recipe.sentence_level.trained == "all"
    # 25 epochs of AAN: 80 % of 12,665 documents in batches of 50
    assert recipe.steps == 25 * math.ceil(0.8 * 12_665 / 50) == 25 * recipe.validation_interval
    encoder = create.Recipe.read(ENCODER_RECIPES / "colde-paper.toml")
    fields = {"block_length": encoder.block_length, "dimension": encoder.dimension}
    made = ColdeConfig(**fields, max_blocks=encoder.max_blocks, **encoder.model)
    assert made == ColdeConfig()  # whose defaults are the paper's


@pytest.mark.slow
def test_graphs_that_lose_too_much_are_refused(
    longmatch: Run, corpus: Path, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("lab", "train", recipe(HALVES), "--corpus", corpus, "-o", tmp_path / "t")
    documents = read_stdlib()
    some = random.Random(0).sample(range(len(documents)), 14)  # that fp16 keeps the neighbours of
    monkeypatch.setattr("service.cli.lab.read_stdlib", lambda: [documents[n] for n in sorted(some)])
    with monkeypatch.context() as patched:
        patched.setattr(evaluation.quality_gate, "MINIMUM_NEIGHBOURS", 1.01)
        refused = longmatch(*run, "--precision", "fp16")
    assert refused.status == 2
    said = refused.err
    assert "of the 10 nearest neighbours of fp32 are kept, under 101%" in said
    assert "the same command with --precision fp32 writes a checkpoint" in said
    assert not (tmp_path / "t").exists()
    again = longmatch(*run, "--precision", "fp16")
    assert again.status == 0
    said = again.err
    assert "resuming after 2 of 2 steps" in said
    assert "fp16: keeps" in said
    quality = json.loads((tmp_path / "t" / QUALITY).read_text())
    assert quality["fp16"]["documents"] == 14
    assert quality["fp16"]["neighbours"] >= 0.98
