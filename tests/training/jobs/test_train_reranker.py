"""Training a reranker on a corpus with links: its pairs, and a run that learns and resumes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.errors import EncoderError
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from index.errors import CorpusError
from index.progress import SilentProgress
from training.data.files import CorpusFiles, RerankJob, find_corpus_files
from training.data.rerank_pairs import (
    PairKinds,
    prepare_rerank_data,
    read_rerank_corpus,
    training_pairs,
)
from training.data.splits import TRAIN, VALID
from training.jobs.train_reranker import train_reranker, validation_figure
from training.progress import SilentTrainingProgress
from training.run_files import read_curve

TOPICS = {
    "river": "The river carries silt past the quay and floods its banks in spring.",
    "music": "The violin plays a slow concert while a drum answers the choir.",
    "bread": "A baker kneads dough, waits for the yeast and bakes bread in the oven.",
}
KINDS = PairKinds(candidates=5)
RECIPE = """
name = "small"
steps = 4
documents = 6
dropout = 0.0
validation_interval = 2
checkpoint_interval = 1
[optimiser]
document_rate = 1e-2
sentence_rate = 1e-3
[sentence_level]
trained = "last"
layers = 2
[[objective]]
kind = "rerank"
candidates = 5
"""


class Interrupting(SilentTrainingProgress):
    """Raises KeyboardInterrupt after the third step."""

    def stepped(self, step: int, figures: Mapping[str, float]) -> None:
        if step == 3:
            raise KeyboardInterrupt


@pytest.fixture
def corpus(tmp_path: Path) -> CorpusFiles:
    """Thirty documents of three topics; words tell topics, links tell north from south."""
    folder = tmp_path / "small"
    folder.mkdir()
    names = [f"{topic}{number}" for topic in TOPICS for number in range(10)]
    with (folder / "corpus.jsonl").open("w") as file:
        for name in names:
            side = "northern" if int(name[-1]) % 2 else "southern"
            text = f"Part {name[-1]} of the {side} book. {TOPICS[name[:-1]]} It ends here."
            file.write(json.dumps({"id": name, "text": text}) + "\n")
    same = [(a, b) for a in names for b in names if a != b and (int(a[-1]) - int(b[-1])) % 2 == 0]
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    part = ["train"] * 5 + ["valid"] * 3 + ["test"] * 2
    (folder / "splits.tsv").write_text("".join(f"{n}\t{part[int(n[-1])]}\n" for n in names))
    pairs = [("river0", "music1", 0), ("river6", "river7", 1)]
    with (folder / "pairs.train.jsonl").open("w") as file:
        for source, target, label in pairs[:1]:
            file.write(json.dumps({"source": source, "target": target, "label": label}) + "\n")
    return find_corpus_files(folder)


@pytest.fixture
def start(tiny_reranker: Path) -> RerankerCheckpoint:
    return load_reranker_checkpoint(tiny_reranker)


def job_of(corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path, name: str) -> RerankJob:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    return RerankJob(
        recipe=recipe,
        start=start,
        files=[corpus],
        output=tmp_path / name,
        work=tmp_path / f"{name}.work",
        precisions=["fp32"],
    )


def test_pairs_are_candidates_of_the_training_part_and_labels_are_links(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    read = read_rerank_corpus(corpus)
    assert (np.bincount(read.parts) == [15, 9, 6]).all()
    assert (TRAIN, VALID) == (0, 1)
    data = prepare_rerank_data([read], start, KINDS, tmp_path / "work", SilentProgress())
    assert 0.2 < data.training.labels.mean() < 0.9
    assert 30 <= len(data.training) <= 15 * 14 / 2
    assert (np.diff(data.validation.groups) >= 0).all()
    assert len(np.unique(data.validation.groups)) == 9
    counts = np.unique(data.validation.groups, return_counts=True)[1]
    assert counts.tolist() == [5] * 9
    assert (data.validation.scores > 0).any()
    again = prepare_rerank_data([read], start, KINDS, tmp_path / "work", SilentProgress())
    assert (again.training.tokens == data.training.tokens).all()


def test_all_links_are_matches_and_a_share_of_the_others_is_random(
    corpus: CorpusFiles, tmp_path: Path
) -> None:
    read = read_rerank_corpus(corpus)
    shares = (0.0, 0.5, 0.99)
    sampled = [training_pairs(read, PairKinds(2, share), tmp_path / "n") for share in shares]
    for pairs in sampled:
        edges = [(pair.first, pair.second) for pair in pairs]
        assert len(set(edges)) == len(edges)
        linked = {edge for edge, pair in zip(edges, pairs, strict=True) if pair.label}
        names = [(read.ids[a], read.ids[b]) for a, b in linked]
        assert all(b in read.qrels[a] for a, b in names)
        assert len(linked) == 9 * 8 / 2 + 6 * 5 / 2
        assert all(read.parts[a] == read.parts[b] == TRAIN for a, b in edges)
    near, mixed, easy = (
        {(pair.first, pair.second) for pair in pairs if not pair.label} for pairs in sampled
    )
    assert mixed & near
    assert mixed - near
    assert len(easy - near) > len(mixed - near) / 2
    topics = [{read.ids[row][:-1] for row in edge} for edge in easy - near]
    assert any(len(topic) == 2 for topic in topics)


def test_what_is_read_has_the_title_above(corpus: CorpusFiles) -> None:
    file = corpus.corpus / "corpus.jsonl"
    lines = file.read_text().replace('"id": "river0"', '"title": "Silt", "id": "river0"')
    file.write_text(lines)
    read = read_rerank_corpus(corpus)
    assert read.readings[0] == f"Silt\n\n{read.texts[0]}"
    assert read.readings[1:] == read.texts[1:]


def test_what_a_reranker_cannot_learn_from_is_refused(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    with pytest.raises(CorpusError, match="links"):
        read_rerank_corpus(replace(corpus, qrels=None))
    read = read_rerank_corpus(corpus)
    unlinked = replace(read, qrels={"river0": {"river9": 1}})
    with pytest.raises(CorpusError, match="no link is within the training part"):
        prepare_rerank_data([unlinked], start, KINDS, tmp_path / "work", SilentProgress())


def test_training_learns_writes_and_goes_on_where_it_stopped(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    whole = job_of(corpus, start, tmp_path, "whole")
    first = train_reranker(whole, SilentProgress(), SilentTrainingProgress())
    open_reranker(first.directory).warm_up()
    report = json.loads((first.directory / "training" / "report.json").read_text())
    assert report["steps"] == 4
    assert report["best"] >= report["before"]
    assert report["corpora"][0]["matches"] > 0
    names = ("whole", "stopped")
    stopped = replace(job_of(corpus, start, tmp_path, "stopped"), precisions=["fp32"])
    with pytest.raises(KeyboardInterrupt):
        train_reranker(stopped, SilentProgress(), Interrupting())
    assert not stopped.output.exists()
    resumed = train_reranker(stopped, SilentProgress(), SilentTrainingProgress())
    curves = [read_curve(tmp_path / f"{n}.work" / "run" / "curve.jsonl") for n in names]
    losses = [[r["loss"] for r in curve if "loss" in r] for curve in curves]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]
    assert (resumed.name, resumed.fingerprint) == (start.name, first.fingerprint)


def test_a_recipe_of_another_model_is_refused(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    job = job_of(corpus, start, tmp_path, "wrong")
    job.recipe.write_text(RECIPE.replace('kind = "rerank"\ncandidates = 5', 'kind = "halves"'))
    with pytest.raises(EncoderError, match="blocks"):
        train_reranker(job, SilentProgress(), SilentTrainingProgress())
    job.recipe.write_text(f'{RECIPE}\n[[objective]]\nkind = "halves"\n')
    with pytest.raises(EncoderError, match="another model"):
        train_reranker(job, SilentProgress(), SilentTrainingProgress())


def test_the_figure_of_validation_is_of_the_reranker_alone(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    read = read_rerank_corpus(corpus)
    table = prepare_rerank_data([read], start, KINDS, tmp_path / "w", SilentProgress()).validation
    perfect = np.where(table.labels > 0, 9.0, -9.0).astype(np.float32)
    assert validation_figure(table, perfect) == pytest.approx(1.0)
    shuffled = np.random.default_rng(1).normal(size=len(table)).astype(np.float32)
    figures = [validation_figure(table, sure * perfect + shuffled) for sure in (-1, 0, 1)]
    assert figures == sorted(figures)
    assert figures[0] < figures[1] < 1.0
