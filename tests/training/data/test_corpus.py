from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.encoded_corpus import EncodedCorpus
from index.errors import CorpusError
from tests.kit.corpora import write_pairs
from training.data.corpus import TrainingCorpus, data_fingerprint, describe, read_training_data
from training.data.files import CorpusFiles, find_corpus_files, given_files
from training.data.pair_files import LEFT_OUT, TEST, TRAIN, VALID, choose_parts
from training.data.sampling import Neighbours, TrainingSource, sampler_of
from training.recipe import PairsRecipe

EncodeTexts = Callable[..., EncodedCorpus]
TEXTS = {f"d{n}": f"Text number {n}." for n in range(12)}
SPLITS = {f"d{n}": "train" if n < 6 else "valid" if n < 9 else "test" for n in range(12)}


def write_splits(folder: Path, splits: dict[str, str]) -> None:
    (folder / "splits.tsv").write_text("".join(f"{d}\t{p}\n" for d, p in splits.items()))


def write_qrels(folder: Path, links: list[tuple[str, str, int]]) -> None:
    (folder / "qrels.tsv").write_text("".join(f"{q}\t0\t{d}\t{r}\n" for q, d, r in links))


def read(folder: Path, encoded: EncodedCorpus) -> TrainingCorpus:
    return read_training_data([(find_corpus_files(folder), encoded)])[0]


@pytest.fixture
def encoded(encode_texts: EncodeTexts) -> EncodedCorpus:
    return encode_texts(TEXTS)


@pytest.fixture
def folder(tmp_path: Path, encoded: EncodedCorpus) -> Path:
    return tmp_path / "corpus"


def test_a_corpus_with_everything(folder: Path, encoded: EncodedCorpus) -> None:
    write_splits(folder, SPLITS | {"gone": "train"})
    write_pairs(folder / "pairs.train.jsonl", [("d0", "d1", 1), ("d1", "d2", 0)])
    write_pairs(folder / "pairs.valid.jsonl", [("d6", "d7", 1), ("d7", "d8", 0), ("d6", "d8", 0)])
    write_pairs(folder / "pairs.test.jsonl", [("d9", "d10", 1)])
    links = [("d0", "d1", 1), ("d1", "d0", 1), ("d0", "d2", 0), ("d3", "d4", 2), ("d3", "d6", 1)]
    write_qrels(folder, [*links, ("d3", "unknown", 1), ("d6", "d0", 1), ("d9", "d1", 1)])
    corpus = read(folder, encoded)
    assert corpus.parts.tolist() == [TRAIN] * 6 + [VALID] * 3 + [TEST] * 3
    assert [corpus.linked(row).tolist() for row in range(6)] == [[1], [0], [], [4], [3], []]
    assert corpus.judgements == {"d6": {"d0": 1}}
    assert corpus.pairs[TRAIN].labels.tolist() == [True, False]
    assert corpus.pairs[VALID].sources.tolist() == [6, 7, 6]
    found = corpus.found
    assert found.documents == {"train": 6, "valid": 3, "test": 3, "left out": 0}
    assert (found.links, found.links_unused, found.queries) == (2, 3, 1)
    assert found.pairs == {"train": (1, 1), "valid": (1, 2), "test": (1, 0)}
    assert found.splits_unknown == 1
    assert not found.chosen
    for said in ("6 train", "2 for training, 3 unused", "1 similar and 2 not", "1 documents that"):
        assert said in describe(found)


def test_nothing_but_texts(folder: Path, encoded: EncodedCorpus) -> None:
    corpus = read(folder, encoded)
    assert sorted(set(corpus.parts.tolist())) == [TRAIN, VALID]
    assert (corpus.parts == VALID).sum() == 1
    assert "chosen here" in describe(corpus.found)
    assert not len(corpus.links)


def test_own_pairs_without_splits(folder: Path, encoded: EncodedCorpus) -> None:
    pairs = [(f"d{a}", f"d{b}", (a + b) % 2) for a in range(12) for b in range(a)]
    file = write_pairs(folder / "mine.jsonl", pairs)
    files = CorpusFiles(folder, pairs=(file,))
    corpus = read_training_data([(files, encoded)])[0]
    assert (corpus.parts[corpus.pairs[TRAIN].sources] == TRAIN).all()
    assert (corpus.parts[corpus.pairs[TRAIN].targets] == TRAIN).all()
    assert len(corpus.pairs[TRAIN].labels) == 55
    assert corpus.found.pairs_unused == 11


@pytest.mark.parametrize(
    ("name", "pair", "match"),
    [
        ("pairs.train.jsonl", ("d0", "d9", 1), r"pairs\.train\.jsonl:2: 'd0' is train and 'd9'"),
        ("pairs.train.jsonl", ("d9", "d10", 1), r"pairs\.train\.jsonl:2: 'd9' is test"),
    ],
)
def test_pairs_that_cross_splits(
    folder: Path, encoded: EncodedCorpus, name: str, pair: tuple[str, str, int], match: str
) -> None:
    write_splits(folder, SPLITS)
    write_pairs(folder / name, [("d0", "d1", 1), pair])
    with pytest.raises(CorpusError, match=f"leak.*{match}"):
        read(folder, encoded)


def test_equal_texts_in_training_and_test(encode_texts: EncodeTexts, tmp_path: Path) -> None:
    twins = encode_texts({"a": "Same text.", "b": "Same text.", "c": "Another.", "d": "More."})
    write_splits(tmp_path / "corpus", {"a": "train", "b": "test", "c": "train", "d": "train"})
    with pytest.raises(CorpusError, match=r"leak.*'a'.*\(train\) and 'b'.*\(test\)"):
        read(tmp_path / "corpus", twins)
    write_splits(tmp_path / "corpus", {"a": "train", "b": "train", "c": "train", "d": "test"})
    assert read(tmp_path / "corpus", twins).found.texts_seen == 0


def test_allowed_shared_documents_and_texts_are_counted(
    encode_texts: EncodeTexts, tmp_path: Path
) -> None:
    texts = TEXTS | {"d7": TEXTS["d0"]}
    encoded = encode_texts(texts)
    folder = tmp_path / "corpus"
    write_pairs(folder / "pairs.train.jsonl", [("d0", "d1", 1), ("d1", "d2", 0)])
    write_pairs(folder / "pairs.valid.jsonl", [("d1", "d6", 1), ("d7", "d8", 0), ("d2", "d0", 1)])
    write_qrels(folder, [("d0", "d1", 1), ("d0", "d2", 1)])
    corpora = [(find_corpus_files(folder), encoded)]
    corpus = read_training_data(corpora, allow_shared=True)[0]
    assert corpus.pairs[TRAIN].sources.tolist() == [0, 1]
    assert corpus.pairs[VALID].sources.tolist() == [1, 7, 2]
    assert corpus.found.texts_seen == 3  # d1, d2, and d0 twice: d7 has its text
    assert "training sees 3 held-out texts: validation is optimistic" in describe(corpus.found)
    assert not corpus.found.chosen
    assert corpus.linked(0).tolist() == [1]  # d0 and d2 are a held-out pair
    assert (corpus.found.links, corpus.found.links_unused) == (1, 1)
    with pytest.raises(CorpusError, match="documents are in the pairs of two parts"):
        read_training_data(corpora)


def test_equal_texts_of_two_corpora(encode_texts: EncodeTexts, tmp_path: Path) -> None:
    first = encode_texts({"a": "Same text.", "b": "B.", "c": "C."}, "first")
    second = encode_texts({"x": "Same text.", "y": "Y.", "z": "Z."}, "second")
    write_splits(tmp_path / "first", {"a": "test", "b": "train", "c": "train"})
    files = [find_corpus_files(tmp_path / name) for name in ("first", "second")]
    data = read_training_data(list(zip(files, [first, second], strict=True)))
    assert data[1].parts[0] == TEST  # held out there, so held out here
    write_splits(tmp_path / "second", {"x": "train", "y": "train", "z": "train"})
    files[1] = find_corpus_files(tmp_path / "second")
    with pytest.raises(CorpusError, match=r"leak.*'x'.*'a'"):
        read_training_data(list(zip(files, [first, second], strict=True)))


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.integers(0, 3))
def test_chosen_parts_keep_equal_texts_together(hashes: list[str], seed: int) -> None:
    free = np.full(len(hashes), LEFT_OUT, dtype=np.int64)
    parts = choose_parts(free, hashes, {"a": TEST}, seed)
    by_hash = dict(zip(hashes, parts.tolist(), strict=True))
    assert [by_hash[h] for h in hashes] == parts.tolist()
    assert set(parts) <= {TRAIN, VALID, TEST}
    assert by_hash.get("a", TEST) == TEST
    others = [part for h, part in by_hash.items() if h != "a"]
    assert others.count(VALID) == (1 if len(others) > 1 else 0)


def test_a_pair_whose_document_is_missing(folder: Path, encoded: EncodedCorpus) -> None:
    write_pairs(folder / "pairs.jsonl", [("d0", "d1", 1), ("d0", "lost", 0)])
    with pytest.raises(CorpusError, match=r"pairs\.jsonl:2.*'lost'"):
        read(folder, encoded)


@pytest.mark.parametrize("label", [0, 1])
def test_pairs_of_one_label(folder: Path, encoded: EncodedCorpus, label: int) -> None:
    write_splits(folder, SPLITS)
    write_pairs(folder / "pairs.jsonl", [("d0", "d1", label), ("d1", "d2", label)])
    corpus = read(folder, encoded)
    nothing = np.empty((6, 0), dtype=np.int64)
    neighbours = Neighbours(nothing, nothing.astype(np.float32), None)
    source = TrainingSource(0, corpus, corpus.rows(TRAIN), neighbours, 4)
    with pytest.raises(CorpusError, match=f"the label {label}"):
        sampler_of(PairsRecipe(), [source], 4)


def test_a_corpus_of_one_document(encode_texts: EncodeTexts, tmp_path: Path) -> None:
    alone = encode_texts({"a": "Text."})
    with pytest.raises(CorpusError, match="holds one document"):
        read(tmp_path / "corpus", alone)
    with pytest.raises(CorpusError, match="no corpus"):
        read_training_data([])


def test_splits_that_leave_documents_out_or_name_none(folder: Path, encoded: EncodedCorpus) -> None:
    write_splits(folder, {"d0": "train", "d1": "train", "d2": "valid"})
    write_pairs(folder / "pairs.jsonl", [("d0", "d1", 1), ("d1", "d0", 1), ("d0", "d5", 0)])
    write_qrels(folder, [("d5", "d0", 1)])
    corpus = read(folder, encoded)
    assert corpus.found.pairs == {"train": (2, 0)}
    assert corpus.found.pairs_unused == 1
    assert corpus.found.documents["left out"] == 9
    assert corpus.found.links_unused == 1
    (folder / "pairs.jsonl").unlink()
    write_splits(folder, {"unknown": "train"})
    with pytest.raises(CorpusError, match="names no document"):
        read(folder, encoded)
    write_splits(folder, {"d0": "train", "d1": "valid"})
    with pytest.raises(CorpusError, match="two documents in the training part"):
        read(folder, encoded)


def test_qrels_of_another_corpus(folder: Path, encoded: EncodedCorpus) -> None:
    write_qrels(folder, [("x", "d0", 1)])
    with pytest.raises(CorpusError, match="no query is a document"):
        read(folder, encoded)


def test_the_fingerprint_is_of_all_that_is_read(folder: Path, encoded: EncodedCorpus) -> None:
    prints = [data_fingerprint([read(folder, encoded)])]
    write_splits(folder, SPLITS)
    prints.append(data_fingerprint([read(folder, encoded)]))
    write_qrels(folder, [("d0", "d1", 1)])
    prints.append(data_fingerprint([read(folder, encoded)]))
    write_qrels(folder, [("d0", "d1", 1), ("d6", "d1", 1)])
    prints.append(data_fingerprint([read(folder, encoded)]))
    write_pairs(folder / "pairs.jsonl", [("d0", "d1", 1), ("d1", "d2", 0)])
    prints.append(data_fingerprint([read(folder, encoded)]))
    assert len(set(prints)) == 5
    assert data_fingerprint([read(folder, encoded)]) == prints[-1]


def test_files_are_found_or_named(folder: Path, encoded: EncodedCorpus, tmp_path: Path) -> None:
    write_splits(folder, SPLITS)
    write_pairs(folder / "pairs.train.jsonl", [("d0", "d1", 1)])
    found = find_corpus_files(folder)
    assert (found.splits, found.qrels) == (folder / "splits.tsv", None)
    assert found.pairs == (folder / "pairs.train.jsonl",)
    (folder / "splits.tsv").rename(folder / "splits.tsv.gz")
    assert find_corpus_files(folder).splits == folder / "splits.tsv.gz"
    alone = find_corpus_files(folder / "corpus.jsonl")
    assert alone == CorpusFiles(folder / "corpus.jsonl")
    named = given_files([folder], None, [], tmp_path / "other.tsv")
    assert named == [CorpusFiles(folder, splits=tmp_path / "other.tsv")]
    with pytest.raises(CorpusError, match="one corpus only"):
        given_files([folder, tmp_path], None, [], tmp_path / "other.tsv")
    with pytest.raises(CorpusError, match="named twice"):
        given_files([folder, folder], None, [], None)
