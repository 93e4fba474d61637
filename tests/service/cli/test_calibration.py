"""longmatch calibrate and longmatch lab fit-calibration, as they are typed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.blocks import Receipt
from encoder.calibration import KindCalibration, read_calibration
from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory
from index.document import Document
from index.embed import EmbeddedCorpus, write_embedded_corpus
from index.search.corpus_calibration import CALIBRATION_FILE, read_corpus_calibration
from index.search.fusion import LinearFusion, read_fusion, write_fusion
from index.store.records import EncodedDocument
from tests.tools.command import Answer, Run
from tests.tools.index_fixtures import aligned_of

DIMENSION = 32


def vectors_of(count: int) -> Any:
    """Return unit vectors in pairs: rows 2n and 2n + 1 are close."""
    random = np.random.default_rng(2)
    middles = random.normal(size=(count // 2, DIMENSION)).repeat(2, axis=0)
    vectors = middles + 0.8 * random.normal(size=middles.shape)
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def text_of(row: int) -> str:
    """Return a text; those of rows 2n and 2n + 1 share most words."""
    return f"pair{row // 2} both{row // 2} part{row % 5} and {row % 9} of {row % 11}"


def store_vectors(data: Path, checkpoint: Path, count: int) -> None:
    opened = load_checkpoint(checkpoint)
    directory = open_data_directory(
        data, fingerprint=opened.fingerprint, dimension=opened.dimension
    )
    directory.store.put(
        [
            EncodedDocument(Document(str(row), text_of(row)), vector, Receipt(2, 2, 1, 0, 2))
            for row, vector in enumerate(vectors_of(count))
        ]
    )
    directory.close()


def write_corpus(folder: Path, count: int = 200, *, blocks: bool = True) -> tuple[Path, Path]:
    """Write vectors, mostly with aligned blocks, and labelled pairs; return both files."""
    folder.mkdir()
    one, vectors = np.ones(count, dtype=np.int64), vectors_of(count)
    ids = tuple(map(str, range(count)))
    aligned = aligned_of(vectors[::-1]) if blocks else None
    write_embedded_corpus(
        folder / "vectors.npz", EmbeddedCorpus(ids, vectors, one, one, 0, aligned)
    )
    pairs = [(row, row + 1, 1) for row in range(0, count, 2)]
    pairs += [(row, (row + 7) % count, 0) for row in range(0, count, 2)]
    (folder / "pairs.jsonl").write_text(
        "".join(
            json.dumps({"source": str(a), "target": str(b), "label": label}) + "\n"
            for a, b, label in pairs
        )
    )
    return folder / "pairs.jsonl", folder / "vectors.npz"


def texts_of(folder: Path, count: int = 200) -> Path:
    """Write the texts of `write_corpus`."""
    path = folder / "corpus.jsonl"
    rows = ({"id": str(row), "text": text_of(row)} for row in range(count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def test_calibrate_writes_and_prints_the_threshold(
    longmatch: Run, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    store_vectors(data, tiny_checkpoint, 250)
    status, out, _ = longmatch("calibrate", "--data", data, "--json")
    assert status == 0
    report = json.loads(out)
    assert report["documents"] == 250
    assert report["pairs"] == 250 * 249 // 2
    assert report["threshold"]["false_positive_rate"] == 0.01
    assert report["kind"] == "hybrid"
    assert report["threshold"] in report["kinds"]["hybrid"]
    opened = load_checkpoint(tiny_checkpoint)
    read = read_corpus_calibration(data, opened.fingerprint, read_fusion(opened))
    assert read is not None
    assert set(read.kinds) == set(report["kinds"]) == {"semantic", "lexical", "hybrid"}
    assert {one.pairs for one in read.kinds.values()} == {report["pairs"]}
    assert read.rule == read_fusion(opened)
    status, out, err = longmatch("calibrate", "--data", data, "--false-positive-rate", 0.03)
    assert status == 0
    assert "3 %" in out
    assert all(kind in out for kind in ("semantic", "lexical", "hybrid"))
    assert str(data / CALIBRATION_FILE) in err
    assert "3.0% of them reach a" in err


def test_calibrate_refuses_what_it_cannot_tell(
    longmatch: Run, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert "no data directory" in longmatch("calibrate", "--data", data)[2]
    store_vectors(data, tiny_checkpoint, 2)
    status, _, err = longmatch("calibrate", "--data", data)
    assert status == 2
    assert "2 documents are too few" in err
    status, _, err = longmatch("calibrate", "--data", data, "--false-positive-rate", 0.02)
    assert status == 2
    assert "must be one of 0.1, 0.03, 0.01, 0.003, 0.001" in err
    assert not (data / CALIBRATION_FILE).exists()


def test_a_match_shows_the_probability(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    file = tmp_path / "c.txt"
    file.write_text("Rivers carve valleys.")
    data = tmp_path / "data"
    assert longmatch("index", file, "--data", data, "--checkpoint", copy)[0] == 0
    plain = longmatch("match", file, "--data", data, "--checkpoint", copy)
    assert "unknown" in plain[1]
    pairs, vectors = write_corpus(tmp_path / "papers")
    arguments = ("lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", vectors)
    words = ("--texts", texts_of(pairs.parent), "--kind", "hybrid", "--kind", "semantic")
    assert longmatch(*arguments, *words)[0] == 0
    judged = longmatch("match", file, "--data", data, "--checkpoint", copy, "--json")
    answer = json.loads(judged[1])
    calibration = read_calibration(load_checkpoint(copy))
    assert calibration is not None
    assert answer["calibration"] == calibration.version
    assert 0.5 < answer["matches"][0]["probability"] <= 1
    assert answer["matches"][0]["false_positive_rate"] is None


def test_fit_calibration_takes_several_corpora(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    before = load_checkpoint(copy).fingerprint
    arguments: list[object] = []
    for name in ("papers", "laws"):
        pairs, vectors = write_corpus(tmp_path / name)
        arguments += ["--pairs", pairs, "--corpus", vectors]
    status, out, err = longmatch("lab", "fit-calibration", copy, *arguments)
    assert status == 0
    assert "(chosen)" in out
    calibration = read_calibration(load_checkpoint(copy))
    assert calibration is not None
    assert calibration.version in err
    assert calibration.fingerprint == before
    fitted_on = calibration.kinds["semantic"].fitted_on
    assert [one.name for one in fitted_on] == ["papers/pairs.jsonl", "laws/pairs.jsonl"]
    assert [(one.pairs, one.matches) for one in fitted_on] == [(200, 100), (200, 100)]


def test_fit_calibration_encodes_a_corpus(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    texts = [f"{topic} {n % 50}. " * 5 for topic in ("river", "music", "tax") for n in range(40)]
    corpus = tmp_path / "c.jsonl"
    corpus.write_text(
        "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(texts))
    )
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(
        "".join(
            f'{{"source": "{n}", "target": "{n + step}", "label": {int(step == 1)}}}\n'
            for n in range(0, 38)
            for step in (1, 60)
        )
    )
    status, _, _ = longmatch("lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", corpus)
    assert status == 0
    calibration = read_calibration(load_checkpoint(copy))
    assert calibration is not None
    assert calibration.kinds["semantic"].fitted_on[0].pairs == 76


def test_an_old_calibration_of_other_weights_is_replaced(
    longmatch: Run, copy: Path, tmp_path: Path
) -> None:
    pairs, vectors = write_corpus(tmp_path / "papers")
    arguments = ("lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", vectors)
    assert longmatch(*arguments)[0] == 0
    (copy / "calibration.json").write_text("{}")
    status, _, err = longmatch(*arguments)
    assert status == 0
    assert "the old calibration is dropped" in err
    assert read_calibration(load_checkpoint(copy)) is not None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"source": "0", "target": "nobody", "label": 1}', "nobody"),
        ('{"source": "0", "target": "1"}', "label"),
        ('{"source": "0", "target": "1", "label": 1}', "1 pairs with label 1 and 0 with label 0"),
        ("", "holds no pair"),
    ],
)
def test_bad_pairs_are_named(
    longmatch: Run, copy: Path, tmp_path: Path, line: str, said: str
) -> None:
    pairs, vectors = write_corpus(tmp_path / "papers")
    enough = pairs.read_text() if said == "nobody" else ""
    pairs.write_text(enough + line + "\n")
    status, _, err = longmatch(
        "lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", vectors
    )
    assert status == 2
    assert said in err
    assert not (copy / "calibration.json").exists()


def test_each_file_of_pairs_needs_its_corpus(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    pairs, vectors = write_corpus(tmp_path / "papers")
    status, _, err = longmatch(
        "lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", vectors, "--corpus", vectors
    )
    assert status == 2
    assert "1 --pairs for 2 --corpus" in err


def test_adapted_vectors_have_a_calibration_of_their_own(
    longmatch: Run, copy: Path, tmp_path: Path
) -> None:
    pairs, vectors = write_corpus(tmp_path / "corpus")
    arguments = ("lab", "fit-calibration", copy, "--pairs", pairs, "--corpus")
    assert longmatch(*arguments, vectors)[0] == 0
    assert longmatch(*arguments, vectors, "--kind", "adapted")[0] == 0
    calibration = read_calibration(load_checkpoint(copy))
    assert calibration is not None
    assert set(calibration.kinds) == {"semantic", "adapted"}
    status, _, err = longmatch(*arguments, tmp_path, "--kind", "adapted")
    assert status == 2
    assert "takes vectors of `embed --adapt`" in " ".join(err.split())


def test_several_kinds_are_fitted_in_one_call(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    pairs, vectors = write_corpus(tmp_path / "corpus")
    arguments = ("lab", "fit-calibration", copy, "--pairs", pairs, "--corpus", vectors)
    words = ("--texts", texts_of(tmp_path / "corpus"))
    kinds = ("--kind", "semantic", "--kind", "lexical", "--kind", "hybrid")
    status, _, err = longmatch(*arguments, *words, *kinds)
    assert status == 0, err
    three = read_calibration(load_checkpoint(copy))
    assert three is not None
    assert set(three.kinds) == {"semantic", "lexical", "hybrid"}
    assert longmatch(*arguments, *words, "--kind", "adapted", "--kind", "adapted hybrid")[0] == 0
    checkpoint = load_checkpoint(copy)
    calibration = read_calibration(checkpoint)
    assert calibration is not None
    five = {"semantic", "lexical", "hybrid", "adapted", "adapted hybrid"}
    assert set(calibration.kinds) == five
    assert calibration.kinds["hybrid"] != calibration.kinds["semantic"]
    write_fusion(checkpoint, read_fusion(checkpoint))  # the same rule: its calibrations hold
    assert read_calibration(load_checkpoint(copy)) == calibration
    other = replace(read_fusion(checkpoint), lexical_weight=0.25)
    write_fusion(load_checkpoint(copy), other)
    kept = read_calibration(load_checkpoint(copy))
    assert kept is not None
    assert set(kept.kinds) == {"semantic", "lexical", "adapted"}


def test_aligned_blocks_count_and_are_needed(longmatch: Run, copy: Path, tmp_path: Path) -> None:
    def fit(corpus: tuple[Path, Path], *kinds: str) -> Answer:
        arguments: list[object] = ["lab", "fit-calibration", copy, "--pairs", corpus[0]]
        arguments += ["--corpus", corpus[1], "--texts", texts_of(corpus[0].parent)]
        for kind in kinds:
            arguments += ["--kind", kind]
        return longmatch(*arguments)

    def found(kind: str) -> KindCalibration:
        calibration = read_calibration(load_checkpoint(copy))
        assert calibration is not None
        return calibration.kinds[kind]

    aligned = write_corpus(tmp_path / "aligned")
    plain = write_corpus(tmp_path / "plain", blocks=False)
    write_fusion(load_checkpoint(copy), LinearFusion(0.5))
    assert fit(plain, "semantic").status == 0
    by_vectors = found("semantic")
    write_fusion(load_checkpoint(copy), LinearFusion(0.5, 0.5, 0.5))
    status, _, err = fit(plain, "lexical", "hybrid")
    assert status == 2
    assert "--corpus: " in err
    assert "plain/vectors.npz: holds no block vectors, which semantic and hybrid" in err
    assert fit(plain, "lexical").status == 0
    assert fit(aligned, "semantic").status == 0
    assert found("semantic").by_score != by_vectors.by_score


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("hybrid",), "need the texts of each --corpus"),
        (("lexical",), "need the texts of each --corpus"),
        (("semantic", "adapted"), "fit these kinds separately"),
        (("hybrid", "adapted hybrid"), "fit these kinds separately"),
        (("fuzzy",), "none of semantic, lexical, hybrid, adapted, adapted hybrid"),
    ],
)
def test_kinds_that_cannot_be_fitted_are_refused(
    longmatch: Run, copy: Path, tmp_path: Path, kinds: tuple[str, ...], said: str
) -> None:
    pairs, vectors = write_corpus(tmp_path / "corpus")
    arguments: list[object] = [
        "lab",
        "fit-calibration",
        copy,
        "--pairs",
        pairs,
        "--corpus",
        vectors,
    ]
    for kind in kinds:
        arguments += ["--kind", kind]
    status, _, err = longmatch(*arguments)
    assert status == 2
    assert said in " ".join(err.replace("│", " ").split())
    texts = texts_of(tmp_path / "corpus")
    status, _, err = longmatch(*arguments[:7], "--texts", texts, "--texts", texts)
    assert status == 2
    assert "2 --texts for 1 --corpus" in err
