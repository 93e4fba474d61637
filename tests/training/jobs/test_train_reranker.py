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
    choose_figure,
    prepare_rerank_data,
    read_rerank_corpora,
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
    write_links(CorpusFiles(folder), [(a, b, 1) for a, b in same])
    part = ["train"] * 5 + ["valid"] * 3 + ["test"] * 2
    (folder / "splits.tsv").write_text("".join(f"{n}\t{part[int(n[-1])]}\n" for n in names))
    corpora.write_pairs(folder / "pairs.train.jsonl", [("river0", "music1", 0)])
    return find_corpus_files(folder)


@pytest.fixture
def start(tiny_reranker: Path) -> RerankerCheckpoint:
    return load_reranker_checkpoint(tiny_reranker)


def read(files: CorpusFiles, *, allow_shared: bool = False) -> RerankCorpus:
    return read_rerank_corpora([files], allow_shared=allow_shared)[0]


def write_links(files: CorpusFiles, links: list[tuple[str, str, int]]) -> CorpusFiles:
    path = files.corpus / "qrels.tsv"
    path.write_text("".join(f"{a}\t0\t{b}\t{relevance}\n" for a, b, relevance in links))
    return replace(files, qrels=path)


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
    known = read(corpus)
    assert (np.bincount(known.parts) == [15, 9, 6]).all()
    assert (TRAIN, VALID) == (0, 1)
    data = prepare_rerank_data([known], start, KINDS, SilentProgress())
    (training,), (validation,) = data.training, data.validation
    assert 0.2 < training.labels.mean() < 0.9
    assert 30 <= len(training) <= 15 * 14 / 2
    assert (np.diff(validation.queries) >= 0).all()
    queries, counts = np.unique(validation.queries, return_counts=True)
    assert len(queries) == 9
    assert counts.tolist() == [5] * 9


def test_links_are_matches_and_a_share_of_others_is_random(corpus: CorpusFiles) -> None:
    known = read(corpus)
    recipes = [RerankRecipe(candidates=2, random=share) for share in (0.0, 0.5, 0.99)]
    sampled = [training_pairs(known, recipe) for recipe in recipes]
    for pairs in sampled:
        edges = [(pair.first, pair.second) for pair in pairs]
        assert len(set(edges)) == len(edges)
        linked = {edge for edge, pair in zip(edges, pairs, strict=True) if pair.label}
        assert all(b in known.linked(a) for a, b in linked)
        assert len(linked) == 9 * 8 / 2 + 6 * 5 / 2
        assert all(known.parts[a] == known.parts[b] == TRAIN for a, b in edges)
    near, mixed, easy = (
        {(pair.first, pair.second) for pair in pairs if not pair.label} for pairs in sampled
    )
    assert mixed & near
    assert mixed - near
    assert len(easy - near) > len(mixed - near) / 2
    topics = [{known.texts.ids[row][:-1] for row in edge} for edge in easy - near]
    assert any(len(topic) == 2 for topic in topics)


def test_what_is_read_has_the_title_above(corpus: CorpusFiles, start: RerankerCheckpoint) -> None:
    def tokens() -> list[list[int]]:
        data = prepare_rerank_data([read(corpus)], start, KINDS, SilentProgress())
        return [text.tolist() for pair in data.validation[0].texts for text in pair]

    untitled, file = tokens(), corpus.corpus / "corpus.jsonl"
    file.write_text(file.read_text().replace('"id"', '"title": "Silt", "id"'))
    assert tokens() != untitled


def test_what_a_reranker_cannot_learn_from_is_refused(
    corpus: CorpusFiles, start: RerankerCheckpoint
) -> None:
    for links, message in (
        ([("river0", "river9", 1), ("river5", "river7", 1)], r"no link .* and no match .* is with"),
        ([("river0", "river2", 1)], "no document of the validation part has links"),
        ([("river0", "river2", 1), ("river5", "music5", 0)], "nothing to validate on"),
    ):
        unlinked = read(write_links(corpus, links))
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
    known = read(corpus)
    data = prepare_rerank_data([known], start, KINDS, SilentProgress())
    assert data.figure == QUERIES
    (table,) = data.validation
    perfect = np.where(table.labels > 0, 9.0, -9.0).astype(np.float32)
    assert measure(data, [perfect]) == pytest.approx(1.0)
    shuffled = np.random.default_rng(1).normal(size=len(table)).astype(np.float32)
    figures = [measure(data, [sure * perfect + shuffled]) for sure in (-1, 0, 1)]
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


def edges_of(known: RerankCorpus, part: int, *labels: bool) -> set[tuple[int, int]]:
    rows = known.pairs[part]
    pairs = zip(rows.sources.tolist(), rows.targets.tolist(), rows.labels.tolist(), strict=True)
    return {(a, b) for a, b, label in pairs if label in labels}


def ends(pairs: list[RowPair], label: float) -> set[tuple[int, int]]:
    return {(pair.first, pair.second) for pair in pairs if pair.label == label}


def test_labelled_pairs_alone_give_matches_and_others(paired: CorpusFiles) -> None:
    known = read(paired)
    assert paired.qrels is None
    assert (np.bincount(known.parts) == [24, 10, 6]).all()
    pairs = training_pairs(known, RerankRecipe(candidates=6))
    others = ends(pairs, 0.0)
    assert ends(pairs, 1.0) == edges_of(known, TRAIN, True)
    different = edges_of(known, TRAIN, False)
    assert different <= others
    rows = np.flatnonzero(known.parts == TRAIN)
    found = find_neighbours([known.texts.documents[row].text for row in rows])
    near = {
        tuple(sorted((row, int(other))))
        for row in rows
        for other in found.nearest[row][:6].tolist()
    }
    sampled = others - different
    assert sampled & near
    assert sampled - near
    assert all(known.parts[a] == known.parts[b] == TRAIN for a, b in others)


def test_probable_matches_are_no_negatives_of_pairs(paired: CorpusFiles) -> None:
    """Nobody has said of them that they do not; a corpus with links says so of all others."""
    file = paired.corpus / "corpus.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    # p0 is in no pair with p9 and none with p23, which has none of its words.
    records[9]["text"], records[23]["text"] = records[0]["text"] + " And more.", "Something else."
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    known = read(paired)
    found = find_neighbours([known.texts.documents[row].text for row in range(24)])
    assert found.nearest[0][0] == 9
    assert found.similarities[0][0] > PROBABLE_MATCH
    kinds = RerankRecipe(candidates=6, random=0.0)
    others = ends(training_pairs(known, kinds), 0.0)
    assert (0, 9) not in others
    assert (0, 23) not in others  # nor is the last document put in its place
    linked = read(write_links(paired, [("p0", "p4", 1)]))
    assert (0, 9) in ends(training_pairs(linked, kinds), 0.0)


def test_held_out_pairs_of_shared_documents_are_not_trained_on(paired: CorpusFiles) -> None:
    every = [(a, b) for a in range(20) for b in range(a + 1, 20)]
    for number, part in enumerate(("train", "valid", "test")):
        write_pairs(paired.corpus, part, every[number::3])
    with pytest.raises(CorpusError, match="--allow-shared-documents"):
        read(paired)
    known = read(paired, allow_shared=True)
    assert known.found.texts_seen >= 20
    assert len(edges_of(known, VALID, True, False)) == len(every[1::3])
    held_out = {edge for part in (1, 2) for edge in edges_of(known, part, True, False)}
    linked = write_links(paired, [(f"p{a}", f"p{b}", 1) for a, b in held_out])
    for random, files in ((0.0, paired), (0.9, paired), (0.5, linked)):
        changed = read(files, allow_shared=True)
        pairs = training_pairs(changed, RerankRecipe(candidates=30, random=random))
        edges = ends(pairs, 0.0) | ends(pairs, 1.0)
        assert len(edges) == len(pairs)
        assert not edges & held_out


def test_a_reranker_is_trained_on_labelled_pairs_alone(
    paired: CorpusFiles, start: RerankerCheckpoint, tmp_path: Path
) -> None:
    known = read(paired)
    data = prepare_rerank_data([known], start, KINDS, SilentProgress())
    assert data.figure == LABELLED
    (table,) = data.validation
    assert len(table) == len(edges_of(known, VALID, True, False))
    labels = np.where(table.labels > 0, 1.0, -1.0).astype(np.float32)
    assert [measure(data, [sign * labels]) for sign in (1, -1, 0)] == [1.0, 0.0, 0.5]
    job = job_of(paired, start, tmp_path, "t")
    made = train_reranker(job, SilentProgress(), TrainingProgress())
    open_reranker(made.directory).warm_up()
    report = json.loads((made.directory / "training" / "report.json").read_text())
    assert report["figure"] == LABELLED
    assert report["best"] >= report["before"]
    assert not report["shared_documents"]
    facts = report["corpora"][0]
    assert (facts["sampled_matches"], facts["texts_seen"]) == (len(edges_of(known, TRAIN, True)), 0)


def test_links_are_measured_before_pairs_of_another_corpus(
    corpus: CorpusFiles, paired: CorpusFiles, start: RerankerCheckpoint
) -> None:
    both = read_rerank_corpora([corpus, paired])
    assert choose_figure(both) == QUERIES
    data = prepare_rerank_data(both, start, KINDS, SilentProgress())
    assert [len(table) > 0 for table in data.training] == [True, True]
    assert [len(table) > 0 for table in data.validation] == [True, False]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({}, "no document of the validation part has links, and no labelled pairs of both"),
        ({"train": [(0, 1)], "valid": [(24, 28), (24, 25)]}, "no link .* and no match"),
        ({"train": [(0, 4)], "valid": [(24, 28)]}, "no labelled pairs of both labels are in it"),
        ({"train": [(0, 4), (0, 1)]}, "no labelled pairs of both labels are in it"),
    ],
)
def test_unusable_pairs_are_refused(
    paired: CorpusFiles,
    start: RerankerCheckpoint,
    written: dict[str, list[tuple[int, int]]],
    message: str,
) -> None:
    for path in paired.pairs:
        path.unlink()
    for part, pairs in written.items():
        write_pairs(paired.corpus, part, pairs)
    known = read(find_corpus_files(paired.corpus))
    with pytest.raises(CorpusError, match=message):
        prepare_rerank_data([known], start, KINDS, SilentProgress())


def test_without_pairs_for_validation_the_error_says_what_to_do(
    paired: CorpusFiles, start: RerankerCheckpoint
) -> None:
    for path in paired.pairs:
        path.unlink()
    write_pairs(paired.corpus, "all", [(n, n + 2) for n in range(0, 36, 4)] + [(0, 4), (8, 12)])
    files = replace(paired, pairs=(paired.corpus / "pairs.all.jsonl",))
    with pytest.raises(CorpusError, match=r"pairs\.valid\.jsonl, or .*--allow-shared-documents"):
        choose_figure([read(files)])
    shared = read(files, allow_shared=True)
    assert choose_figure([shared]) == LABELLED
