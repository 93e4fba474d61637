"""Batches that are sampled, sections that documents are cut into, and lexical neighbours."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from encoder.checkpoint import load_checkpoint
from encoder.tokenizer import BlockTokenizer
from evaluation.baselines import tfidf_matrix
from evaluation.encoded_corpus import EncodedCorpus
from index.errors import CorpusError
from index.progress import SilentProgress
from training.data import sampling
from training.data.corpus import read_training_data
from training.data.files import find_corpus_files
from training.data.pair_files import TRAIN

WORDS = ["river", "stone", "music", "winter", "letter", "engine", "forest", "harbour", "bridge"]
DOCUMENTS = 60
SEEDS = range(20)


def make_texts(seed: int) -> dict[str, str]:
    random = np.random.default_rng(seed)
    return {
        f"d{n}": ". ".join([*random.choice(WORDS, size=1 + n % 7), f"own{seed}x{n}."])
        for n in range(DOCUMENTS)
    }


@pytest.fixture
def sources(
    encode_texts: Callable[..., EncodedCorpus], tmp_path: Path
) -> list[sampling.TrainingSource]:
    """Two corpora: one with splits, links and pairs, one with nothing."""
    corpora = []
    for name, seed in (("known", 1), ("plain", 2)):
        texts = make_texts(seed)
        encoded = encode_texts(texts, name)
        if name == "known":
            folder = tmp_path / name
            parts = ["train"] * 4 + ["valid"]
            splits = (f"d{n}\t{parts[n % 5]}\n" for n in range(DOCUMENTS))
            (folder / "splits.tsv").write_text("".join(splits))
            links = (f"d{n}\t0\td{(7 * n + 1) % DOCUMENTS}\t1\n" for n in range(DOCUMENTS))
            (folder / "qrels.tsv").write_text("".join(links))
            pairs = (
                f'{{"source": "d{n}", "target": "d{n + 1}", "label": {n % 2}}}\n'
                for n in range(DOCUMENTS)
                if n % 5 < 3
            )
            (folder / "pairs.jsonl").write_text("".join(pairs))
        corpora.append((find_corpus_files(tmp_path / name), encoded))
    data = read_training_data(corpora)
    made = []
    for number, corpus in enumerate(data):
        texts = list(make_texts(number + 1).values())
        rows = corpus.rows(TRAIN)
        neighbours = sampling.find_neighbours([texts[r] for r in rows])
        made.append(sampling.TrainingSource(number, corpus, rows, neighbours, 6))
    return made


def row_of(part: sampling.DocumentSlice) -> int:
    return part.row  # the archive's rows are the corpus's here


def queries_and_candidates(
    sampled: sampling.Batch,
) -> tuple[tuple[sampling.DocumentSlice, ...], tuple[sampling.DocumentSlice, ...]]:
    queries = len(sampled.known["positives"])
    return sampled.documents[:queries], sampled.documents[queries:]


def require_training_rows(
    sources: list[sampling.TrainingSource], parts: tuple[sampling.DocumentSlice, ...]
) -> None:
    for part in parts:
        assert part.row in sources[part.archive].rows


def test_equal_seeds_sample_equal_batches(sources: list[sampling.TrainingSource]) -> None:
    for sample in (
        lambda r: sampling.sample_documents(sources, 10, r),
        lambda r: sampling.sample_pairs(sources, 10, r),
        lambda r: sampling.sample_links(sources, 12, 1, r),
        lambda r: sampling.sample_labels(sources, 12, r),
        lambda r: sampling.sample_halves(sources, 12, 1, r),
        lambda r: sampling.sample_neighbours(sources, 12, r),
    ):
        sampled = [repr(sample(np.random.default_rng(seed))) for seed in (1, 1, 2)]
        assert sampled[0] == sampled[1] != sampled[2]


def test_links(sources: list[sampling.TrainingSource]) -> None:
    for seed in SEEDS:
        sampled = sampling.sample_links(sources, 12, 1, np.random.default_rng(seed))
        corpus = sources[0].corpus
        require_training_rows(sources, sampled.documents)
        assert {part.archive for part in sampled.documents} == {0}
        queries, candidates = queries_and_candidates(sampled)
        assert len(queries) == 4
        assert len(set(map(row_of, candidates))) == len(candidates)
        known = zip(queries, sampled.known["positives"], sampled.known["ignored"], strict=True)
        for query, positives, ignored in known:
            linked = corpus.linked(query.row)
            rows = np.array([row_of(part) for part in candidates])
            assert positives.tolist() == np.isin(rows, linked).tolist()
            assert positives.any()
            assert not (positives & ignored).any()
            assert ignored[rows == query.row].all()


def test_hard_negatives_are_near_and_not_linked(sources: list[sampling.TrainingSource]) -> None:
    source = sources[0]
    more = 0
    for seed in SEEDS:
        sampled = sampling.sample_links(sources, 12, 2, np.random.default_rng(seed))
        queries, candidates = queries_and_candidates(sampled)
        linked = {int(n) for q in queries for n in source.corpus.linked(q.row)}
        near = {int(n) for q in queries for n in source.near(q.row)}
        for candidate in candidates:
            if candidate.row not in linked:
                more += 1
                assert candidate.row in near
    assert more


def test_pairs_keep_their_labels(sources: list[sampling.TrainingSource]) -> None:
    for seed in SEEDS:
        sampled = sampling.sample_pairs(sources, 8, np.random.default_rng(seed))
        labels = sampled.known["labels"]
        assert len(labels) == 4
        pairs = zip(sampled.documents[:4], sampled.documents[4:], labels, strict=True)
        for source, target, label in pairs:
            assert target.row == source.row + 1
            assert label == bool(source.row % 2)
        require_training_rows(sources, sampled.documents)


def test_halves_are_the_document_cut_in_two(sources: list[sampling.TrainingSource]) -> None:
    for seed in SEEDS:
        sampled = sampling.sample_halves(sources, 16, 1, np.random.default_rng(seed))
        require_training_rows(sources, sampled.documents)
        queries, candidates = queries_and_candidates(sampled)
        assert len(queries) == 5
        positives = sampled.known["positives"]
        assert np.array_equal(positives, np.eye(*positives.shape, dtype=bool))
        for query, candidate in zip(queries, candidates, strict=False):
            assert query.row == candidate.row
            blocks = sources[query.archive].blocks(query.row)
            assert blocks <= 6
            if blocks > 1:
                both = np.concatenate([query.places, candidate.places])
                assert both.tolist() == list(range(blocks))
                assert len(query.places)
                assert len(candidate.places)


def test_neighbourhoods_with_the_teacher(sources: list[sampling.TrainingSource]) -> None:
    for seed in SEEDS:
        sampled = sampling.sample_neighbours(sources, 16, np.random.default_rng(seed))
        rows = [row_of(part) for part in sampled.documents]
        assert len(set(rows)) == len(rows) == 16
        source = sources[sampled.documents[0].archive]
        require_training_rows(sources, sampled.documents)
        places = np.searchsorted(source.rows, rows)
        similarities = sampled.known["similarities"]
        assert np.allclose(similarities, source.neighbours.between(places))
        assert np.allclose(np.diag(similarities), 1, atol=1e-5)
        assert similarities.max() > sampling.PROBABLE_MATCH


def test_groups_are_linked_within_and_not_between(sources: list[sampling.TrainingSource]) -> None:
    related = {source.number: source.corpus.links for source in sources}
    for seed in SEEDS:
        sampled = sampling.sample_labels(sources, 12, np.random.default_rng(seed), related=related)
        corpus = sources[0].corpus
        groups: dict[int, set[int]] = {}
        for part, label in zip(sampled.documents, sampled.known["labels"].tolist(), strict=True):
            groups.setdefault(label, set()).add(part.row)
        for label, rows in groups.items():
            first, second = sorted(rows)
            assert second in corpus.linked(first)
            for other, others in groups.items():
                if other != label:
                    assert not others & set(corpus.linked(first).tolist())


def test_pairs_can_say_what_belongs_together(sources: list[sampling.TrainingSource]) -> None:
    related = {source.number: sampling.matching_documents(source) for source in sources}
    assert not related[1]
    for seed in SEEDS:
        sampled = sampling.sample_labels(sources[:1], 8, np.random.default_rng(seed), 1, related)
        rows = [row_of(part) for part in sampled.documents]
        assert sampled.known["labels"].tolist() == [n // 2 for n in range(len(rows))]
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            assert abs(first - second) == 1
            assert min(first, second) % 2 == 1  # the pairs that match
            assert second in related[0][first]
        assert all(part.sections == 1 for part in sampled.documents)


def test_sections_are_documents_cut_and_need_no_label(
    sources: list[sampling.TrainingSource],
) -> None:
    own = replace(sources[1], section_starts={row: np.array([2]) for row in range(DOCUMENTS)})
    for seed in SEEDS:
        sampled = sampling.sample_labels([own], 9, np.random.default_rng(seed), 3)
        require_training_rows(sources, sampled.documents)
        assert 9 <= len(sampled.documents) <= 11
        by_label: dict[int, list[sampling.DocumentSlice]] = {}
        for part, label in zip(sampled.documents, sampled.known["labels"].tolist(), strict=True):
            by_label.setdefault(label, []).append(part)
        for parts in by_label.values():
            assert len({part.row for part in parts}) == 1
            blocks = own.blocks(parts[0].row)
            assert np.concatenate([p.places for p in parts]).tolist() == list(range(blocks))
            assert [(p.section, p.sections) for p in parts] == [
                (number, len(parts)) for number in range(len(parts))
            ]
            if blocks > 2:  # cut where its own section begins
                assert [int(part.places[0]) for part in parts] == [0, 2]


def test_documents_of_all_corpora_none_twice(sources: list[sampling.TrainingSource]) -> None:
    total = sum(len(source.rows) for source in sources)
    sampled = sampling.sample_documents(sources, total + 5, np.random.default_rng(0)).documents
    assert len({(part.archive, part.row) for part in sampled}) == len(sampled) == total


def test_what_is_not_there_is_said(sources: list[sampling.TrainingSource]) -> None:
    random = np.random.default_rng(0)
    with pytest.raises(CorpusError, match="learns from links"):
        sampling.sample_links(sources[1:], 8, 0, random)
    with pytest.raises(CorpusError, match="learns from pairs"):
        sampling.sample_pairs(sources[1:], 8, random)
    assert len(sampling.sample_labels(sources[1:], 8, random).known["labels"]) >= 8


@given(
    blocks=st.integers(1, 80),
    parts=st.integers(1, 9),
    seed=st.integers(0, 99),
    starts=st.lists(st.integers(-3, 90), max_size=12),
)
def test_sections_are_the_document(blocks: int, parts: int, seed: int, starts: list[int]) -> None:
    sections = sampling.cut_blocks(blocks, parts, np.random.default_rng(seed), starts)
    assert np.concatenate(sections).tolist() == list(range(blocks))
    assert all(len(section) for section in sections)
    inside = {start for start in starts if 0 < start < blocks}
    assert len(sections) == min(parts, len(inside) + 1 if inside else blocks)
    if inside:
        assert {int(section[0]) for section in sections[1:]} <= inside


def test_draws_move_halves_from_three_to_seven_tenths() -> None:
    firsts = [
        len(sampling.cut_blocks(100, 2, np.random.default_rng(seed))[0]) for seed in range(200)
    ]
    assert 30 <= min(firsts) < 35
    assert 65 < max(firsts) <= 70


SECTION = "The river runs on and on. " * 6
HEADED = f"# Rivers\n\n{SECTION}\n\n# Stones\n\n{SECTION}\n\n# Letters\n\n{SECTION}\n"


def test_headings_are_found_and_plain_texts_left_to_equal_parts(
    encode_texts: Callable[..., EncodedCorpus], tmp_path: Path, tiny_checkpoint: Path
) -> None:
    texts = {"headed": HEADED, "plain": SECTION * 3, "held out": HEADED + "More."}
    encoded = encode_texts(texts, "corpus")
    folder = tmp_path / "corpus"
    (folder / "splits.tsv").write_text("headed\ttrain\nplain\ttrain\nheld out\tvalid\n")
    (data,) = read_training_data([(find_corpus_files(folder), encoded)])
    checkpoint = load_checkpoint(tiny_checkpoint)
    starts = sampling.find_section_starts(data, checkpoint, SilentProgress())
    row = encoded.ids.index("headed")
    assert list(starts) == [row]
    offsets = BlockTokenizer(checkpoint)(HEADED).offsets
    for start, title in zip(starts[row], ("# Stones", "# Letters"), strict=True):
        assert offsets[start - 1][0] < HEADED.index(title) <= offsets[start][0]
    assert json.dumps(starts[row].tolist())  # plain numbers
    assert np.all(np.diff(starts[row]) > 0)


def some_texts(number: int) -> list[str]:
    random = np.random.default_rng(1)
    return [" ".join(random.choice(WORDS, size=4)) for _ in range(number)]


def test_neighbours_are_the_nearest_by_tfidf() -> None:
    from sklearn.metrics.pairwise import cosine_similarity  # each worker of the tests pays for it

    texts = [*some_texts(300), "unheard unseen"]
    found = sampling.find_neighbours(texts)
    expected = cosine_similarity(tfidf_matrix(texts))
    between = found.between([3, 1, 300])
    assert np.allclose(between, expected[np.ix_([3, 1, 300], [3, 1, 300])], atol=1e-6)
    np.fill_diagonal(expected, -1)
    for place in range(len(texts)):
        best = np.sort(expected[place])[::-1][: found.nearest.shape[1]]
        assert np.allclose(found.similarities[place], np.maximum(best, 0), atol=1e-6)
        near = found.nearest[place][found.nearest[place] >= 0]
        assert place not in near
        assert np.allclose(expected[place, near], found.similarities[place, : len(near)], atol=1e-6)
    assert (found.nearest[300] == -1).all()


def test_texts_without_a_word_in_common() -> None:
    with pytest.raises(CorpusError, match="no word"):
        sampling.find_neighbours(["river", "stone"])
