"""What longmatch index measures of scores, and longmatch lab fit-calibration."""

import gzip
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from encoder.calibration import Calibration, read_calibration
from encoder.checkpoint import load_checkpoint
from index.search.calibrate import TOO_FEW
from index.search.corpus_calibration import CALIBRATION_FILE, CorpusCalibration
from index.search.score import ChannelWeights, read_fusion, write_fusion
from tests.kit.calibrations import MODES
from tests.kit.command import Answer, Run
from tests.kit.corpora import json_lines


def text_of(row: int) -> str:
    """Return a text; those of rows 2n and 2n + 1 share most words."""
    return f"pair{row // 2} both{row // 2} part{row % 5} and {row % 9} of {row % 11}"


def texts_of(folder: Path, count: int = 200) -> Path:
    """Write texts, those of rows 2n and 2n + 1 alike."""
    path = folder / "corpus.jsonl"
    path.write_text(json_lines({"id": str(row), "text": text_of(row)} for row in range(count)))
    return path


def write_corpora(folder: Path, *names: str, judged: int = 100) -> Path:
    """Write corpora whose rows 2n and 2n + 1 are relevant to each other."""
    for name in names:
        (corpus := folder / name).mkdir(parents=True)
        with gzip.open(corpus / "corpus.jsonl.gz", "wt") as file:
            file.write(texts_of(corpus).read_text())
        rows = range(0, 2 * judged, 2)
        (corpus / "qrels.tsv").write_text("".join(f"{row}\t0\t{row + 1}\t1\n" for row in rows))
        (corpus / "splits.tsv").write_text("".join(f"{row}\tvalid\n" for row in rows))
    return folder


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


Fit = Callable[..., Answer]


@pytest.fixture
def fit(longmatch: Run, copy: Path, tmp_path: Path) -> Fit:
    """Return a function that fits to corpora of a folder."""

    def run(data: Path) -> Answer:
        blocks = tmp_path / "blocks"
        return longmatch("lab", "fit-calibration", copy, "--data", data, "--blocks", blocks)

    return run


def fitted(checkpoint: Path) -> Calibration:
    calibration = read_calibration(load_checkpoint(checkpoint))
    assert calibration is not None
    return calibration


def test_index_measures_from_100_documents_on(
    longmatch: Run, fit: Fit, copy: Path, tmp_path: Path
) -> None:
    corpus, query = texts_of(tmp_path, 99), tmp_path / "c.txt"
    query.write_text(text_of(40))
    assert fit(write_corpora(tmp_path / "corpora", "papers", "laws")).status == 0
    calibration = tmp_path / "data" / CALIBRATION_FILE

    def matched() -> Any:
        assert longmatch("index", corpus, "--encoder", copy).status == 0
        return json.loads(longmatch("match", query, "--encoder", copy, "--json").out)

    few = matched()
    assert not calibration.exists()
    assert few["calibration"] == fitted(copy).version
    assert few["matches"][0]["probability"] is few["matches"][0]["false_positive_rate"] is None
    assert few["no_probability"] == TOO_FEW
    assert f"no probabilities: {TOO_FEW}" in longmatch("match", query, "--encoder", copy).err
    texts_of(tmp_path, 100)
    enough = matched()
    content = json.loads(calibration.read_text())
    read = CorpusCalibration.read(calibration.parent, load_checkpoint(copy).fingerprint)
    assert read is not None
    assert set(read.kinds) == set(MODES)
    assert {kind.pairs for kind in read.kinds.values()} == {100 * 99 // 2}
    assert read.documents == 100
    assert enough["calibration"] == f"{fitted(copy).version}+{content['version']}"
    assert {match["id"] for match in enough["matches"][:2]} == {"40", "41"}
    assert 0.5 < enough["matches"][0]["probability"] <= 1
    planted = 50 / 4_950  # the share of random pairs that are pairs of near texts
    assert enough["matches"][0]["false_positive_rate"] == pytest.approx(planted, rel=0.2)
    relevant = [match["relevant"] for match in enough["matches"]]
    printed = longmatch("match", query, "--encoder", copy).out.splitlines()[1:]
    assert ["(chance)" not in line for line in printed] == relevant != [True] * 10
    texts_of(tmp_path, 150)
    matched()
    assert json.loads(calibration.read_text()) == content  # it has not grown by more than half
    texts_of(tmp_path, 151)
    matched()
    assert json.loads(calibration.read_text())["kinds"]["semantic"]["documents"] == 151


def test_a_fit_replaces_the_calibration(fit: Fit, copy: Path, tmp_path: Path) -> None:
    before = load_checkpoint(copy).fingerprint
    data = write_corpora(tmp_path / "corpora", "papers", "laws")
    status, out, err = fit(data)
    assert status == 0, err
    assert all(word in out for word in ("papers", "laws", "all", *MODES))
    calibration = fitted(copy)
    assert calibration.version in err
    assert calibration.fingerprint == before
    assert set(calibration.kinds) == set(MODES)
    matches = {"laws": 100, "papers": 100}
    for kind in calibration.kinds.values():
        assert {corpus.name: corpus.matches for corpus in kind.fitted_on} == matches
    assert calibration.kinds["hybrid"] != calibration.kinds["semantic"]
    (copy / "calibration.json").write_text("{}")
    assert fit(data).status == 0
    assert fitted(copy) == calibration
    checkpoint = load_checkpoint(copy)
    write_fusion(checkpoint, read_fusion(checkpoint))  # the same rule: its calibrations hold
    assert fitted(copy) == calibration
    other = replace(read_fusion(checkpoint), hybrid=ChannelWeights(1.0, 2.0, 3.0))
    write_fusion(load_checkpoint(copy), other)
    assert set(fitted(copy).kinds) == {"semantic", "lexical"}


def test_corpora_that_say_nothing_are_named(fit: Fit, copy: Path, tmp_path: Path) -> None:
    status, _, err = fit(write_corpora(tmp_path / "lone", "papers"))
    assert status == 2
    assert "--data: " in err
    assert "holds 1 corpora with qrels.tsv, not 2" in " ".join(err.split())
    few = write_corpora(write_corpora(tmp_path / "few", "papers"), "laws", judged=19)
    status, _, err = fit(few)
    assert status == 2
    assert "laws: 19 pairs with label 1 and 19 with label 0" in " ".join(err.split())
    assert not (copy / "calibration.json").exists()
