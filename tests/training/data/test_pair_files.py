"""Labelled pairs whose parts share documents, or do not."""

from pathlib import Path

import numpy as np
import pytest

from evaluation.judgements import PARTS
from index.errors import CorpusError
from tests.kit.corpora import write_pairs
from training.data.files import CorpusFiles, find_corpus_files
from training.data.pair_files import LEFT_OUT, place_pairs, read_labelled_pairs

IDS = [f"d{n}" for n in range(12)]
TRIANGLE = [("d0", "d1", 1), ("d1", "d2", 0), ("d0", "d2", 1)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").touch()
    return tmp_path


@pytest.fixture
def shared(folder: Path) -> CorpusFiles:
    """d1 is in the pairs of two parts, d2 of all three, d5 of the two that are held out."""
    write_pairs(folder / "pairs.train.jsonl", TRIANGLE)
    write_pairs(folder / "pairs.valid.jsonl", [("d2", "d3", 0), ("d1", "d4", 0), ("d4", "d5", 1)])
    write_pairs(folder / "pairs.test.jsonl", [("d5", "d6", 1), ("d2", "d6", 0)])
    return find_corpus_files(folder)


def edges(files: CorpusFiles, seed: int = 0) -> dict[str, list[tuple[int, int, bool]]]:
    labelled = read_labelled_pairs(files, seed, allow_shared=True)
    known = labelled.part_of
    parts = np.array([PARTS.index(known[n]) if n in known else LEFT_OUT for n in IDS])
    placed, unused = place_pairs(labelled, IDS, parts)
    assert unused == 0
    return {
        PARTS[part]: list(
            zip(rows.sources.tolist(), rows.targets.tolist(), rows.labels.tolist(), strict=True)
        )
        for part, rows in placed.items()
    }


def test_shared_documents_are_refused_and_the_way_out_is_named(shared: CorpusFiles) -> None:
    message = r"leak.*'d2' is at .*pairs\.train\.jsonl:2 and .*--allow-shared-documents trains"
    with pytest.raises(CorpusError, match=message):
        read_labelled_pairs(shared)
    read_labelled_pairs(shared, allow_shared=True)


def test_a_tenth_of_the_pairs_of_each_label_is_for_validation(folder: Path) -> None:
    pairs = [(f"d{a}", f"d{b}", int(a % 3 == 0)) for a in range(12) for b in range(a)]
    files = CorpusFiles(folder, pairs=(write_pairs(folder / "mine.jsonl", pairs),))
    found = edges(files)
    labels = {part: [label for _, _, label in some] for part, some in found.items()}
    matches = sum(label for _, _, label in pairs)
    assert labels["valid"].count(True) == round(matches / 10)
    assert labels["valid"].count(False) == round((len(pairs) - matches) / 10)
    assert len(labels["train"]) == len(pairs) - len(labels["valid"])
    assert labels["test"] == []
    turned = [(b, a, label) for a, b, label in pairs]
    again = CorpusFiles(folder, pairs=(write_pairs(folder / "turned.jsonl", turned),))
    chosen = edges(again)["valid"]
    assert sorted(chosen) == sorted((b, a, label) for a, b, label in found["valid"])
    other = edges(files, 1)["valid"]
    assert other != found["valid"]


def test_two_pairs_are_enough_for_validation_and_one_is_not(folder: Path) -> None:
    pairs = [("d0", "d1", 1), ("d2", "d3", 1), ("d4", "d5", 0)]
    files = CorpusFiles(folder, pairs=(write_pairs(folder / "mine.jsonl", pairs),))
    found = edges(files)
    assert [label for _, _, label in found["valid"]] == [True]
    assert sorted(label for _, _, label in found["train"]) == [False, True]


def test_both_directions_of_a_pair_are_in_one_part(folder: Path) -> None:
    pairs = [(f"d{a}", f"d{b}", int(a > b)) for a in range(5) for b in range(5, 12)]
    pairs += [(f"d{b}", f"d{a}", int(a > b)) for a in range(5) for b in range(5, 12)]
    files = CorpusFiles(folder, pairs=(write_pairs(folder / "mine.jsonl", pairs),))
    for seed in range(5):
        found = edges(files, seed)
        both = [{tuple(sorted(edge[:2])) for edge in found[part]} for part in ("train", "valid")]
        assert both[1]
        assert not both[0] & both[1]


def test_a_pair_is_of_the_part_that_a_file_names_or_of_none(folder: Path) -> None:
    write_pairs(folder / "pairs.jsonl", [("d1", "d0", 1), ("d2", "d3", 1), ("d3", "d0", 1)])
    write_pairs(folder / "pairs.valid.jsonl", [("d0", "d1", 1), ("d0", "d2", 0)])
    found = edges(find_corpus_files(folder))
    assert len(found["train"]) == 1
    assert set(found["valid"]) > {(0, 1, True), (0, 2, False)}
    write_pairs(folder / "pairs.train.jsonl", [("d1", "d0", 1), ("d2", "d3", 0)])
    files = find_corpus_files(folder)
    message = r"leak: pairs are in two parts: \('d0', 'd1'\) is at .*train\.jsonl:1 and at .*valid"
    with pytest.raises(CorpusError, match=message):
        read_labelled_pairs(files, allow_shared=True)


def test_given_splits_are_kept_even_where_sharing_is_allowed(
    folder: Path, shared: CorpusFiles
) -> None:
    parts = ["train"] * 3 + ["valid"] * 3 + ["test"] * 6
    (folder / "splits.tsv").write_text(
        "".join(f"{name}\t{part}\n" for name, part in zip(IDS, parts, strict=True))
    )
    files = find_corpus_files(folder)
    with pytest.raises(CorpusError, match="pairs cross the splits"):
        read_labelled_pairs(files, allow_shared=True)
