"""longmatch calibrate and longmatch lab fit-calibration, as they are typed."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder.blocks import Receipt
from encoder.calibration import Calibration, read_calibration
from encoder.checkpoint import load_checkpoint
from index.directory.data_directory import open_data_directory
from index.document import Document
from index.embed import EmbeddedCorpus, write_embedded_corpus
from index.search.calibrator import TOO_FEW
from index.search.corpus_calibration import CALIBRATION_FILE, read_corpus_calibration
from index.search.fusion import ChannelWeights, read_fusion, write_fusion
from index.store.records import EncodedDocument
from tests.kit.command import Answer, Run
from tests.kit.corpora import json_lines, write_pairs
from tests.kit.index_fixtures import aligned_of

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
    ones, vectors = np.ones(count, dtype=np.int64), vectors_of(count)
    ids = tuple(map(str, range(count)))
    aligned = aligned_of(vectors[::-1]) if blocks else None
    write_embedded_corpus(
        folder / "vectors.npz", EmbeddedCorpus(ids, vectors, ones, ones, 0, aligned)
    )
    pairs = [(row, row + 1, 1) for row in range(0, count, 2)]
    pairs += [(row, (row + 7) % count, 0) for row in range(0, count, 2)]
    named = ((str(a), str(b), label) for a, b, label in pairs)
    return write_pairs(folder / "pairs.jsonl", named), folder / "vectors.npz"


def texts_of(folder: Path, count: int = 200) -> Path:
    """Write the texts of `write_corpus`."""
    path = folder / "corpus.jsonl"
    path.write_text(json_lines({"id": str(row), "text": text_of(row)} for row in range(count)))
    return path


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


Fit = Callable[..., Answer]


@pytest.fixture
def fit(longmatch: Run, copy: Path) -> Fit:
    """Return a function that fits kinds to pairs and the vectors of their corpora."""

    def run(*corpora: tuple[Path, Path], kinds: Sequence[str] = (), texts: bool = False) -> Answer:
        arguments: list[object] = ["lab", "fit-calibration", copy]
        for pairs, corpus in corpora:
            arguments += ["--pairs", pairs, "--corpus", corpus]
            arguments += ["--texts", texts_of(pairs.parent)] if texts else []
        for kind in kinds:
            arguments += ["--kind", kind]
        return longmatch(*arguments)

    return run


def fitted(checkpoint: Path) -> Calibration:
    calibration = read_calibration(load_checkpoint(checkpoint))
    assert calibration is not None
    return calibration


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
    read = read_corpus_calibration(data, opened.fingerprint)
    assert read is not None
    assert set(read.kinds) == set(report["kinds"]) == {"semantic", "lexical", "hybrid"}
    assert {kind.pairs for kind in read.kinds.values()} == {report["pairs"]}
    assert read.rule == read_fusion(opened).resolve(read.statistics)
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


def test_index_measures_from_100_documents_on(
    longmatch: Run, fit: Fit, copy: Path, tmp_path: Path
) -> None:
    corpus, query = texts_of(tmp_path, 99), tmp_path / "c.txt"
    query.write_text(text_of(40))
    assert fit(write_corpus(tmp_path / "papers"), texts=True, kinds=("hybrid",)).status == 0
    calibration = tmp_path / "data" / CALIBRATION_FILE

    def matched() -> Any:
        assert longmatch("index", corpus, "--checkpoint", copy).status == 0
        return json.loads(longmatch("match", query, "--checkpoint", copy, "--json").out)

    few = matched()
    assert not calibration.exists()
    assert few["calibration"] == fitted(copy).version
    assert few["matches"][0]["probability"] is few["matches"][0]["false_positive_rate"] is None
    assert few["no_probability"] == TOO_FEW
    assert f"no probabilities: {TOO_FEW}" in longmatch("match", query, "--checkpoint", copy).err
    texts_of(tmp_path, 100)
    enough = matched()
    content = json.loads(calibration.read_text())
    assert content["statistics"]["documents"] == 100
    assert enough["calibration"] == f"{fitted(copy).version}+{content['version']}"
    assert {match["id"] for match in enough["matches"][:2]} == {"40", "41"}
    assert 0.5 < enough["matches"][0]["probability"] <= 1
    planted = 50 / 4_950  # the share of random pairs that are pairs of near texts
    assert enough["matches"][0]["false_positive_rate"] == pytest.approx(planted, rel=0.2)
    relevant = [match["relevant"] for match in enough["matches"]]
    printed = longmatch("match", query, "--checkpoint", copy).out.splitlines()[1:]
    assert ["(chance)" not in line for line in printed] == relevant != [True] * 10
    texts_of(tmp_path, 150)
    matched()
    assert json.loads(calibration.read_text()) == content  # it has not grown by more than half
    texts_of(tmp_path, 151)
    matched()
    assert json.loads(calibration.read_text())["statistics"]["documents"] == 151


def test_several_corpora_replace_an_old_calibration(fit: Fit, copy: Path, tmp_path: Path) -> None:
    before = load_checkpoint(copy).fingerprint
    corpora = [write_corpus(tmp_path / name) for name in ("papers", "laws")]
    status, out, err = fit(*corpora)
    assert status == 0
    assert "(chosen)" in out
    calibration = fitted(copy)
    assert calibration.version in err
    assert calibration.fingerprint == before
    fitted_on = calibration.kinds["semantic"].fitted_on
    assert [corpus.name for corpus in fitted_on] == ["papers/pairs.jsonl", "laws/pairs.jsonl"]
    assert [(corpus.pairs, corpus.matches) for corpus in fitted_on] == [(200, 100), (200, 100)]
    (copy / "calibration.json").write_text("{}")
    status, _, err = fit(*corpora)
    assert status == 0
    assert "the old calibration is dropped" in err
    assert fitted(copy) == calibration


def test_fit_calibration_encodes_a_corpus(fit: Fit, copy: Path, tmp_path: Path) -> None:
    texts = [f"{topic} {n % 50}. " * 5 for topic in ("river", "music", "tax") for n in range(40)]
    corpus, pairs = tmp_path / "c.jsonl", tmp_path / "pairs.jsonl"
    corpus.write_text(json_lines({"id": n, "text": text} for n, text in enumerate(texts)))
    steps = [(n, step) for n in range(38) for step in (1, 60)]
    write_pairs(pairs, ((str(n), str(n + step), int(step == 1)) for n, step in steps))
    assert fit((pairs, corpus)).status == 0
    assert fitted(copy).kinds["semantic"].fitted_on[0].pairs == 76


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"source": "0", "target": "nobody", "label": 1}', "nobody"),
        ('{"source": "0", "target": "1"}', "label"),
        ('{"source": "0", "target": "1", "label": 1}', "1 pairs with label 1 and 0 with label 0"),
        ("", "holds no pair"),
    ],
)
def test_bad_pairs_are_named(fit: Fit, copy: Path, tmp_path: Path, line: str, message: str) -> None:
    pairs, vectors = write_corpus(tmp_path / "papers")
    enough = pairs.read_text() if message == "nobody" else ""
    pairs.write_text(enough + line + "\n")
    status, _, err = fit((pairs, vectors))
    assert status == 2
    assert message in err
    assert not (copy / "calibration.json").exists()


def test_several_kinds_are_fitted_in_one_call(fit: Fit, copy: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    status, _, err = fit(corpus, texts=True, kinds=("semantic", "lexical", "hybrid"))
    assert status == 0, err
    assert set(fitted(copy).kinds) == {"semantic", "lexical", "hybrid"}
    assert fit(corpus, texts=True, kinds=("adapted", "adapted hybrid")).status == 0
    calibration = fitted(copy)
    assert set(calibration.kinds) == {"semantic", "lexical", "hybrid", "adapted", "adapted hybrid"}
    assert calibration.kinds["hybrid"] != calibration.kinds["semantic"]
    status, _, err = fit((corpus[0], tmp_path), kinds=["adapted"])
    assert status == 2
    assert "takes vectors of `embed --adapt`" in " ".join(err.split())
    checkpoint = load_checkpoint(copy)
    write_fusion(checkpoint, read_fusion(checkpoint))  # the same rule: its calibrations hold
    assert fitted(copy) == calibration
    other = replace(read_fusion(checkpoint), hybrid=ChannelWeights(1.0, 2.0, 3.0))
    write_fusion(load_checkpoint(copy), other)
    assert set(fitted(copy).kinds) == {"semantic", "lexical", "adapted"}


def test_aligned_blocks_count_and_are_needed(fit: Fit, copy: Path, tmp_path: Path) -> None:
    aligned = write_corpus(tmp_path / "aligned")
    plain = write_corpus(tmp_path / "plain", blocks=False)
    rule = read_fusion(load_checkpoint(copy))
    write_fusion(load_checkpoint(copy), replace(rule, semantic=ChannelWeights(0.0, 0.0, 1.0)))
    assert fit(aligned, texts=True, kinds=["semantic"]).status == 0
    by_vectors = fitted(copy).kinds["semantic"]
    write_fusion(load_checkpoint(copy), replace(rule, semantic=ChannelWeights(0.0, 1.0, 0.0)))
    status, _, err = fit(plain, texts=True, kinds=("lexical", "hybrid"))
    assert status == 2
    assert "--corpus: " in err
    assert "plain/vectors.npz: holds no block vectors, which semantic and hybrid" in err
    assert fit(plain, texts=True, kinds=["lexical"]).status == 0
    assert fit(aligned, texts=True, kinds=["semantic"]).status == 0
    assert fitted(copy).kinds["semantic"] != by_vectors
