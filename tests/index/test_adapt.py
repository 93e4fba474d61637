"""An adapter is fitted to texts alone, and what it was fitted to is found better afterwards."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.adapter import adapter_vocabulary, vector_space
from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.errors import AdapterError
from encoder.terms.term_table import Terms, count_words
from encoder.tokenizer import BlockTokenizer
from evaluation.experiment import adapt_vectors
from index import adapt
from index.adapt import (
    ADAPTER_FILE,
    MIN_DOCUMENTS,
    WEIGHT,
    CorpusAdapter,
    CountedCorpus,
    adapt_data_directory,
    count_corpus,
    find_titles,
    fit_adapter,
    in_sample,
    read_corpus_adapter,
)
from index.directory.data_directory import locked, open_data_directory
from index.document import Document
from index.errors import CorpusError, DataDirectoryInUseError, StoreError
from index.progress import SilentProgress

TOPICS = (
    "zither violin orchestra sonata concert melody",
    "granite basalt quartz feldspar lava crystal",
    "harbour schooner sailor anchor lighthouse tide",
)
QUIET = SilentProgress()


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


def texts_of(number: int, seed: int = 0) -> list[str]:
    """Document n is of topic n % 3: some of its words, among words that all documents have."""
    random = np.random.default_rng(seed)
    texts = []
    for row in range(number):
        words = random.choice(TOPICS[row % 3].split(), 4).tolist()
        texts.append(f"The first part of the text is about {' and '.join(words)}. Number {row}.")
    return texts


def terms_of(texts: Sequence[str], checkpoint: Checkpoint) -> list[Terms]:
    vocabulary, tokenizer = adapter_vocabulary(checkpoint), BlockTokenizer(checkpoint)
    return [count_words(vocabulary, tokenizer(text).blocks) for text in texts]


def counted(texts: Sequence[str], checkpoint: Checkpoint) -> CountedCorpus:
    return CountedCorpus(terms_of(texts, checkpoint))


def documents_of(texts: Sequence[str]) -> list[Document]:
    return [Document(f"d{number}", text) for number, text in enumerate(texts)]


def of_one_topic(vectors: np.ndarray) -> float:
    """Which share of the documents have one of their own topic nearest."""
    cosines = vectors @ vectors.T
    np.fill_diagonal(cosines, -2)
    return float(np.mean(cosines.argmax(axis=1) % 3 == np.arange(len(vectors)) % 3))


def unit_rows(number: int, width: int) -> np.ndarray:
    vectors = np.random.default_rng(3).normal(size=(number, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_neighbours_improve(checkpoint: Checkpoint) -> None:
    texts, vectors = texts_of(60), unit_rows(60, 256)
    adapted = adapt_vectors(vectors, documents_of(texts), 60, checkpoint, QUIET)
    assert of_one_topic(vectors) < 0.6
    assert of_one_topic(adapted) > 0.85  # beside vectors that say nothing of topics
    assert of_one_topic(adapted[:, 256:]) > 0.95
    np.testing.assert_allclose(np.linalg.norm(adapted, axis=1), 1.0, atol=1e-5)
    np.testing.assert_allclose(adapted[:, :256], (1 - WEIGHT) ** 0.5 * vectors, atol=1e-6)


def test_queries_are_adapted_by_what_the_corpus_says(checkpoint: Checkpoint) -> None:
    texts, vectors = texts_of(60), unit_rows(63, 32)
    queries = ["zither sonata xylophone", "quartz lava xylophone", "tide anchor xylophone"]
    adapted = adapt_vectors(vectors, documents_of([*texts, *queries]), 60, checkpoint, QUIET)
    alone = adapt_vectors(vectors[:60], documents_of(texts), 60, checkpoint, QUIET)
    np.testing.assert_array_equal(adapted[:60], alone)
    cosines = adapted[60:, 32:] @ adapted[:60, 32:].T
    assert (cosines.argmax(axis=1) % 3).tolist() == [0, 1, 2]


def test_the_same_corpus_gives_the_same_adapter(checkpoint: Checkpoint) -> None:
    first, again, other = (
        fit_adapter(counted(texts_of(30, seed), checkpoint), checkpoint, QUIET)
        for seed in (0, 0, 1)
    )
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert first.documents == 30


def test_which_terms_get_a_weight(checkpoint: Checkpoint) -> None:
    adapter = fit_adapter(counted(texts_of(30), checkpoint), checkpoint, QUIET)
    known = set(adapter.rows.tolist())
    vocabulary, tokenizer = adapter_vocabulary(checkpoint), BlockTokenizer(checkpoint)

    def rows(text: str) -> set[int]:
        return set(count_words(vocabulary, tokenizer(text).blocks).rows.tolist())

    assert rows("violin") <= known
    assert not rows("first text") & known  # all documents have them
    assert not rows("29") & known  # one has it
    assert rows("feldspar") <= known
    assert (adapter.table.weights > 0).all()


def test_the_table_is_the_decomposition(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapt, "DIMENSION", 8)
    terms = terms_of(texts_of(30), checkpoint)
    adapter = fit_adapter(CountedCorpus(terms), checkpoint, QUIET)
    dense = np.zeros((30, len(adapter.rows)))
    for row, term in enumerate(terms):
        known = np.isin(term.rows, adapter.rows)
        columns = np.searchsorted(adapter.rows, term.rows[known])
        dense[row, columns] = np.log1p(term.counts[known]) * adapter.table.weights[columns]
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    _, values, right = np.linalg.svd(dense, full_matrices=False)
    kept = adapter.width
    assert kept == 8 < len(values)
    expected = dense @ (right[:kept].T / values[:kept] ** 0.5)
    table = adapter.table.vectors * adapter.table.scales[:, None]
    np.testing.assert_allclose(
        (dense @ table) @ (dense @ table).T, expected @ expected.T, atol=0.03
    )


def test_the_most_frequent_terms_are_kept(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms = counted(texts_of(30), checkpoint)
    whole = fit_adapter(terms, checkpoint, QUIET)
    monkeypatch.setattr(adapt, "TERMS", 5)
    few = fit_adapter(terms, checkpoint, QUIET)
    assert len(few.rows) == 5
    rare_of_few = few.table.weights.max()
    left_out = ~np.isin(whole.rows, few.rows)
    assert (whole.table.weights[left_out] >= rare_of_few).all()
    assert (np.diff(few.rows) > 0).all()


@pytest.mark.parametrize("number", [0, 1, MIN_DOCUMENTS - 1])
def test_too_few_documents(checkpoint: Checkpoint, number: int) -> None:
    with pytest.raises(CorpusError, match=f"has {number} readable .* takes {MIN_DOCUMENTS}"):
        fit_adapter(counted(texts_of(number), checkpoint), checkpoint, QUIET)
    adapter = fit_adapter(counted(texts_of(MIN_DOCUMENTS), checkpoint), checkpoint, QUIET)
    assert 0 < adapter.width < MIN_DOCUMENTS


@pytest.mark.parametrize("text", ["The same text.", "word{0} word{0}{0}"])
def test_a_corpus_without_a_telling_word(checkpoint: Checkpoint, text: str) -> None:
    names = ["alpha", "bravo", "tango", "delta", "oscar", "kilo", "lima", "mike", "romeo", "papa"]
    texts = [text.replace("word", "").format(name) for name in names]
    with pytest.raises(CorpusError, match="no word that two documents share"):
        fit_adapter(counted(texts, checkpoint), checkpoint, QUIET)


def test_documents_without_a_telling_word_harm_nothing(checkpoint: Checkpoint) -> None:
    texts = [*texts_of(30), "???", "Unheard."]
    adapted = adapt_vectors(unit_rows(32, 8), documents_of(texts), 32, checkpoint, QUIET)
    assert np.isfinite(adapted).all()
    np.testing.assert_array_equal(adapted[30:, :8], unit_rows(32, 8)[30:])


def test_an_unreadable_line_is_not_counted(checkpoint: Checkpoint, tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts_of(12))]
    lines[3:3] = ["{oops", json.dumps({"id": "control", "text": "\u0001"}), ""]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("\n".join(lines) + "\n")
    found = count_corpus(corpus, checkpoint, BlockTokenizer(checkpoint), QUIET)
    expected = terms_of(texts_of(12), checkpoint)
    assert len(found.documents) == 12
    assert not len(found.titles)  # none of these documents has one
    for document, other in zip(found.documents, expected, strict=True):
        np.testing.assert_array_equal(document.rows, other.rows)
        np.testing.assert_array_equal(document.counts, other.counts)


def test_a_large_corpus_is_sampled_by_its_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [Document(f"d{n}", f"text {n}") for n in range(4_000)]
    assert all(in_sample(document, len(documents)) for document in documents)
    monkeypatch.setattr(adapt, "DOCUMENTS", 1_000)
    chosen = {document.text for document in documents if in_sample(document, len(documents))}
    assert 900 < len(chosen) < 1_100
    renamed = [Document(f"e{n}", document.text) for n, document in enumerate(reversed(documents))]
    assert {document.text for document in renamed if in_sample(document, len(documents))} == chosen


def test_who_names_the_same_titles_is_near(checkpoint: Checkpoint) -> None:
    """Words say nothing here: all documents have the same ones, in another order."""
    texts = ["They read the red book.", "They book the red read."] * 12
    documents = [
        Document(f"d{n}", text, "Red Book" if n == 0 else f"Number {n}")
        for n, text in enumerate(texts)
    ]
    features = adapt_vectors(unit_rows(24, 8), documents, 24, checkpoint, QUIET)[:, 8:]
    assert features[0] @ features[2] == pytest.approx(WEIGHT, abs=1e-5)
    assert not features[1].any()


def test_titles_not_in_the_table_are_dropped(checkpoint: Checkpoint, tmp_path: Path) -> None:
    titles = ["Violin", "Granite", "Never named", "", "?", "The first part"]
    corpus = tmp_path / "corpus.jsonl"
    lines = [
        json.dumps({"id": f"d{n}", "title": titles[n % 6], "text": text})
        for n, text in enumerate(texts_of(30))
    ]
    corpus.write_text("\n".join(lines))
    tokenizer = BlockTokenizer(checkpoint)
    found = count_corpus(corpus, checkpoint, tokenizer, QUIET)
    adapter = fit_adapter(found, checkpoint, QUIET)
    known = find_titles(titles[:2], tokenizer)  # the last is named by all, the others by none
    np.testing.assert_array_equal(adapter.titles.hashes, known.hashes)
    assert len(found.titles) == 5


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    words = ["river", "stone", "music", "winter", "letter"]
    lines = [{"id": f"d{n}", "text": f"{words[n % 5]} {words[(n + 1) % 5]}"} for n in range(20)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class Adapting:
    """`adapt_data_directory` on one directory."""

    def __init__(self, data: Path, checkpoint: Checkpoint) -> None:
        self.data, self.checkpoint = data, checkpoint

    def __call__(self, corpus: Path) -> CorpusAdapter:
        tokenizer = BlockTokenizer(self.checkpoint)
        return adapt_data_directory(corpus, self.data, self.checkpoint, tokenizer, SilentProgress())


@pytest.fixture
def fit(tmp_path: Path, checkpoint: Checkpoint) -> Adapting:
    return Adapting(tmp_path / "data", checkpoint)


def test_it_is_stored_and_kept(fit: Adapting, corpus: Path, tmp_path: Path) -> None:
    assert read_corpus_adapter(fit.data, fit.checkpoint) is None
    first = fit(corpus)
    assert not first.kept
    stored = read_corpus_adapter(fit.data, fit.checkpoint)
    assert stored is not None
    assert stored.digest == first.adapter.digest
    assert stored.documents == 20
    corpus.unlink()  # what is there is not fitted again
    again = fit(corpus)
    assert again.kept
    assert again.adapter.digest == first.adapter.digest


def test_a_directory_with_vectors(fit: Adapting, corpus: Path, checkpoint: Checkpoint) -> None:
    space = vector_space(checkpoint, None)
    open_data_directory(fit.data, fingerprint=space.fingerprint, dimension=space.dimension).close()
    with pytest.raises(StoreError, match=r"made without --adapt.*new data directory"):
        fit(corpus)
    assert not (fit.data / ADAPTER_FILE).exists()


def test_nothing_is_left_of_a_fit_that_failed(fit: Adapting, tmp_path: Path) -> None:
    small = tmp_path / "small.jsonl"
    small.write_text('{"id": "a", "text": "One."}\n')
    with pytest.raises(CorpusError, match="has 1 readable documents"):
        fit(small)
    with pytest.raises(CorpusError, match="no such file"):
        fit(tmp_path / "absent.jsonl")
    assert not list(fit.data.glob(f"{ADAPTER_FILE}*"))


def test_a_damaged_one_is_refused_and_not_fitted_over(fit: Adapting, corpus: Path) -> None:
    fit(corpus)
    path = fit.data / ADAPTER_FILE
    path.write_bytes(path.read_bytes()[:-100])
    before = path.read_bytes()
    with pytest.raises(AdapterError, match=r"adapter\.npz: is damaged"):
        read_corpus_adapter(fit.data, fit.checkpoint)
    with pytest.raises(AdapterError, match=r"adapter\.npz: is damaged"):
        fit(corpus)
    assert path.read_bytes() == before


def test_an_adapter_of_another_checkpoint(
    fit: Adapting, corpus: Path, checkpoint: Checkpoint
) -> None:
    fit(corpus)
    other = replace(checkpoint, fingerprint="e" * 64)
    with pytest.raises(AdapterError, match=f"not for {'e' * 12}.*another data directory"):
        read_corpus_adapter(fit.data, other)


def test_one_process_at_a_time_fits(fit: Adapting, corpus: Path) -> None:
    with locked(fit.data), pytest.raises(DataDirectoryInUseError):
        fit(corpus)
    fit(corpus)  # and the lock is free again


def test_a_file_that_cannot_be_read(fit: Adapting) -> None:
    (fit.data / ADAPTER_FILE).mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be read"):
        read_corpus_adapter(fit.data, fit.checkpoint)
