"""Training a reranker on links, or on labelled pairs alone: its pairs, and a run that resumes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.errors import EncoderError
from encoder.reranker.checkpoint import RerankerCheckpoint, load_reranker_checkpoint
from encoder.reranker.onnx_reranker import open_reranker
from index.errors import CorpusError
from index.progress import SilentProgress
from tests.kit import corpora
from training.data.files import CorpusFiles, RerankJob, find_corpus_files
from training.data.pair_files import TRAIN, VALID
from training.data.rerank_pairs import (
    LABELLED,
    QUERIES,
    RerankCorpus,
    RowPair,
    check_rerank_files,
    choose_figure,
    prepare_rerank_data,
    read_rerank_corpus,
    training_pairs,
)
from training.data.sampling import PROBABLE_MATCH, find_neighbours
from training.jobs.train_reranker import measure, train_reranker
from training.progress import TrainingProgress
from training.recipe import RerankRecipe

TOPICS = {
    "river": "The river carries silt past the quay and floods its banks in spring.",
    "music": "The violin plays a slow concert while a drum answers the choir.",
    "bread": "A baker kneads dough, waits for the yeast and bakes bread in the oven.",
}
KINDS = RerankRecipe(candidates=5)
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
    corpora.write_pairs(folder / "pairs.train.jsonl", [("river0", "music1", 0)])
    return find_corpus_files(folder)


@pytest.fixture
def start(tiny_reranker: Path) -> RerankerCheckpoint:
    return load_reranker_checkpoint(tiny_reranker)


def job_of(corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path, name: str) -> RerankJob:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    return RerankJob(
        recipe=recipe, start=start, files=[corpus], output=tmp_path / name,
        work=tmp_path / f"{name}.work", precisions=["fp32"],
    )  # fmt: skip


def test_pairs_are_training_candidates_and_labels_are_links(
    corpus: CorpusFiles, start: RerankerCheckpoint
) -> None:
    read = read_rerank_corpus(corpus)
    assert (np.bincount(read.parts) == [15, 9, 6]).all()
    assert (TRAIN, VALID) == (0, 1)
    data = prepare_rerank_data([read], start, KINDS, SilentProgress())
    assert 0.2 < data.training.labels.mean() < 0.9
    assert 30 <= len(data.training) <= 15 * 14 / 2
    assert (np.diff(data.validation.groups) >= 0).all()
    assert len(np.unique(data.validation.groups)) == 9
    counts = np.unique(data.validation.groups, return_counts=True)[1]
    assert counts.tolist() == [5] * 9


def test_links_are_matches_and_a_share_of_others_is_random(corpus: CorpusFiles) -> None:
    read = read_rerank_corpus(corpus)
    recipes = [RerankRecipe(candidates=2, random=share) for share in (0.0, 0.5, 0.99)]
    sampled = [training_pairs(read, recipe) for recipe in recipes]
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
    corpus: CorpusFiles, start: RerankerCheckpoint
) -> None:
    read = read_rerank_corpus(corpus)
    for qrels, message in (
        ({"river0": {"river9": 1}, "river5": {"river7": 1}}, "no link or match is within the"),
        ({"river0": {"river2": 1}}, "no document of the validation part has links"),
        ({"river0": {"river2": 1}, "river5": {"music5": 0}}, "nothing to validate on"),
    ):
        unlinked = replace(read, qrels=qrels)
        with pytest.raises(CorpusError, match=message):
            prepare_rerank_data([unlinked], start, KINDS, SilentProgress())


def test_a_recipe_of_another_model_is_refused(
    corpus: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    job = job_of(corpus, start, tmp_path, "wrong")
    job.recipe.write_text(RECIPE.replace('kind = "rerank"\ncandidates = 5', 'kind = "halves"'))
    with pytest.raises(EncoderError, match="blocks"):
        train_reranker(job, SilentProgress(), TrainingProgress())
    job.recipe.write_text(f'{RECIPE}\n[[objective]]\nkind = "halves"\n')
    with pytest.raises(EncoderError, match="another model"):
        train_reranker(job, SilentProgress(), TrainingProgress())


def test_the_figure_of_validation_is_of_the_reranker_alone(
    corpus: CorpusFiles, start: RerankerCheckpoint
) -> None:
    read = read_rerank_corpus(corpus)
    data = prepare_rerank_data([read], start, KINDS, SilentProgress())
    assert data.figure == QUERIES
    table = data.validation
    perfect = np.where(table.labels > 0, 9.0, -9.0).astype(np.float32)
    assert measure(data, perfect) == pytest.approx(1.0)
    shuffled = np.random.default_rng(1).normal(size=len(table)).astype(np.float32)
    figures = [measure(data, sure * perfect + shuffled) for sure in (-1, 0, 1)]
    assert figures == sorted(figures)
    assert figures[0] < figures[1] < 1.0


# --- labelled pairs alone -------------------------------------------------------------------


@pytest.fixture
def paired(tmp_path: Path) -> CorpusFiles:
    """The documents of 40 parts of four books, and pairs: those of one book match.

    Words that all parts share make neighbours of parts of other books.
    """
    folder = tmp_path / "paired"
    folder.mkdir()
    random = np.random.default_rng(5)
    words = [f"word{n}" for n in range(60)]
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(40):
            text = f"Book {number % 4}. " + " ".join(random.choice(words, 25))
            file.write(json.dumps({"id": f"p{number}", "text": text}) + "\n")
    parts = {"train": range(24), "valid": range(24, 34), "test": range(34, 40)}
    for part, numbers in parts.items():
        write_pairs(folder, part, [(a, b) for a in numbers for b in numbers if a < b and b - a < 5])
    return find_corpus_files(folder)


def write_pairs(folder: Path, part: str, pairs: list[tuple[int, int]]) -> None:
    labelled = ((f"p{a}", f"p{b}", int(a % 4 == b % 4)) for a, b in pairs)
    corpora.write_pairs(folder / f"pairs.{part}.jsonl", labelled)


def edges_of(read: RerankCorpus, part: int, *labels: bool) -> set[tuple[int, int]]:
    rows = read.pairs[part]
    known = zip(rows.sources.tolist(), rows.targets.tolist(), rows.labels.tolist(), strict=True)
    return {(a, b) for a, b, label in known if label in labels}


def ends(pairs: list[RowPair], label: float) -> set[tuple[int, int]]:
    return {(pair.first, pair.second) for pair in pairs if pair.label == label}


def test_labelled_pairs_alone_give_matches_and_others(paired: CorpusFiles) -> None:
    read = read_rerank_corpus(paired)
    assert paired.qrels is None
    assert (np.bincount(read.parts) == [24, 10, 6]).all()
    pairs = training_pairs(read, RerankRecipe(candidates=6))
    others = ends(pairs, 0.0)
    assert ends(pairs, 1.0) == edges_of(read, TRAIN, True)
    different = edges_of(read, TRAIN, False)
    assert different <= others
    rows = np.flatnonzero(read.parts == TRAIN)
    found = find_neighbours([read.texts[row] for row in rows])
    near = {
        tuple(sorted((row, int(other))))
        for row in rows
        for other in found.nearest[row][:6].tolist()
    }
    sampled = others - different
    assert sampled & near
    assert sampled - near
    assert all(read.parts[a] == read.parts[b] == TRAIN for a, b in others)


def test_probable_matches_are_no_negatives_of_pairs(paired: CorpusFiles) -> None:
    """Nobody has said of them that they do not; a corpus with links says so of all others."""
    file = paired.corpus / "corpus.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    # p0 is in no pair with p9 and none with p23, which has none of its words.
    records[9]["text"], records[23]["text"] = records[0]["text"] + " And more.", "Something else."
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    read = read_rerank_corpus(paired)
    found = find_neighbours([read.texts[row] for row in range(24)])
    assert found.nearest[0][0] == 9
    assert found.similarities[0][0] > PROBABLE_MATCH
    kinds = RerankRecipe(candidates=6, random=0.0)
    others = ends(training_pairs(read, kinds), 0.0)
    assert (0, 9) not in others
    assert (0, 23) not in others  # nor is the last document put in its place
    linked = replace(read, qrels={"p0": {"p4": 1}})
    assert (0, 9) in ends(training_pairs(linked, kinds), 0.0)


def test_held_out_pairs_of_shared_documents_are_not_trained_on(paired: CorpusFiles) -> None:
    every = [(a, b) for a in range(20) for b in range(a + 1, 20)]
    for number, part in enumerate(("train", "valid", "test")):
        write_pairs(paired.corpus, part, every[number::3])
    with pytest.raises(CorpusError, match="--allow-shared-documents"):
        read_rerank_corpus(paired)
    read = read_rerank_corpus(paired, allow_shared=True)
    assert read.texts_seen >= 20
    assert len(edges_of(read, VALID, True, False)) == len(every[1::3])
    held_out = {edge for part in (1, 2) for edge in edges_of(read, part, True, False)}
    links = {f"p{a}": {f"p{b}": 1} for a, b in held_out}
    for random, qrels in ((0.0, {}), (0.9, {}), (0.5, links)):
        changed = replace(read, qrels=qrels)
        pairs = training_pairs(changed, RerankRecipe(candidates=30, random=random))
        edges = ends(pairs, 0.0) | ends(pairs, 1.0)
        assert len(edges) == len(pairs)
        assert not edges & held_out


def test_a_reranker_is_trained_on_labelled_pairs_alone(
    paired: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    read = read_rerank_corpus(paired)
    data = prepare_rerank_data([read], start, KINDS, SilentProgress())
    assert data.figure == LABELLED
    assert len(data.validation) == len(edges_of(read, VALID, True, False))
    labels = np.where(data.validation.labels > 0, 1.0, -1.0).astype(np.float32)
    assert measure(data, labels) == 1.0
    assert measure(data, -labels) == 0.0
    assert measure(data, 0 * labels) == 0.5
    job = job_of(paired, start, tmp_path, "t")
    made = train_reranker(job, SilentProgress(), TrainingProgress())
    open_reranker(made.directory).warm_up()
    report = json.loads((made.directory / "training" / "report.json").read_text())
    assert report["figure"] == LABELLED
    assert report["best"] >= report["before"]
    assert not report["shared_documents"]
    facts = report["corpora"][0]
    assert (facts["matches"], facts["texts_seen"]) == (len(edges_of(read, TRAIN, True)), 0)


def test_links_are_measured_before_pairs_of_another_corpus(
    corpus: CorpusFiles, paired: CorpusFiles, start: RerankerCheckpoint
) -> None:
    both = [read_rerank_corpus(corpus), read_rerank_corpus(paired)]
    assert choose_figure(both) == QUERIES
    data = prepare_rerank_data(both, start, KINDS, SilentProgress())
    assert np.unique(data.training.groups).tolist() == [0, 1]
    assert data.validation.groups.max() < 100_000


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({}, "a reranker learns from links, in a file qrels.tsv, or from labelled pairs"),
        ({"train": [(0, 1)], "valid": [(24, 28), (24, 25)]}, "no pair for training has the label"),
        ({"train": [(0, 4)], "valid": [(24, 28)]}, "validation takes links, or pairs of both lab"),
        ({"train": [(0, 4), (0, 1)]}, "validation takes links, or pairs of both labels"),
    ],
)
def test_unusable_pairs_are_refused_before_documents_are_read(
    paired: CorpusFiles, written: dict[str, list[tuple[int, int]]], message: str
) -> None:
    for path in paired.pairs:
        path.unlink()
    for part, pairs in written.items():
        write_pairs(paired.corpus, part, pairs)
    (paired.corpus / "corpus.jsonl").write_bytes(b"")
    with pytest.raises(CorpusError, match=message):
        check_rerank_files([find_corpus_files(paired.corpus)])


def test_without_pairs_for_validation_the_error_says_what_to_do(
    paired: CorpusFiles, start: RerankerCheckpoint
) -> None:
    for path in paired.pairs:
        path.unlink()
    write_pairs(paired.corpus, "all", [(n, n + 2) for n in range(0, 36, 4)] + [(0, 4), (8, 12)])
    files = replace(paired, pairs=(paired.corpus / "pairs.all.jsonl",))
    check_rerank_files([files])
    with pytest.raises(CorpusError, match=r"pairs\.valid\.jsonl, or .*--allow-shared-documents"):
        choose_figure([read_rerank_corpus(files)])
    shared = read_rerank_corpus(files, allow_shared=True)
    assert choose_figure([shared]) == LABELLED
