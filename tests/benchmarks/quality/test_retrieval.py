import gzip
import json
from pathlib import Path

import pytest

from benchmarks.quality.retrieval import find_corpora, measure, table
from encoder.checkpoint import load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from index.errors import CorpusError

TOPICS = {"river": "The river carries water.", "music": "The violin plays a concert."}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A corpus of two topics with judgements and pairs, and one without judgements."""
    folder = tmp_path / "data" / "small"
    folder.mkdir(parents=True)
    (tmp_path / "data" / "unlabelled").mkdir()
    names = [f"{topic}{n}" for topic in TOPICS for n in range(4)]
    same = [(a, b) for a in names for b in names if a != b and a[:-1] == b[:-1]]
    texts = {name: f"{TOPICS[name[:-1]]} Part {name[-1]} of it. " * 5 for name in names}
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in texts.items())
    (folder / "qrels.tsv").write_text("".join(f"{a}\t0\t{b}\t1\n" for a, b in same))
    part = {"0": "train", "1": "valid", "2": "test", "3": "test"}
    (folder / "splits.tsv").write_text("".join(f"{n}\t{part[n[-1]]}\n" for n in names))
    for name in ("valid", "test"):
        pairs = [("river0", "river1", 1), ("music1", "river2", 0)]
        with gzip.open(folder / f"pairs.{name}.jsonl.gz", "wt") as file:
            for source, target, label in pairs:
                file.write(json.dumps({"source": source, "target": target, "label": label}) + "\n")
    return tmp_path / "data"


def test_measures_every_corpus_with_judgements(
    data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    results = {}
    for part in ("test", "valid"):
        (corpus,) = find_corpora(data, part)
        assert corpus.folder.name == "small"
        results[part] = measure(corpus, encoder, tmp_path / "kept")
    assert results["test"]["retrieval"]["queries"] == 4
    assert results["valid"]["retrieval"]["queries"] == 2
    assert results["test"]["pairs"]["threshold_chosen_on"] == "validation pairs"
    assert results["valid"]["pairs"]["threshold_chosen_on"] == "the same pairs"
    for part, result in results.items():
        json.dumps(result, allow_nan=False)
        text = table({"settings": {"split": part}, "results": {"small": result}})
        assert f"nDCG@10, {part} retrieval (95 % interval; p against tfidf)" in text
        assert f"accuracy, {part} pairs" in text
        assert "| semantic" in text
        assert "| lsa" in text


def test_retrieval_is_measured_with_and_without_mentions(
    data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    """River 3 is named by all other rivers, and music 2 by music 3 alone; both are queries."""
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    path = data / "small" / "corpus.jsonl.gz"
    with gzip.open(path, "rt") as file:
        lines = {line["id"]: line for line in map(json.loads, file)}
    lines["river3"]["title"], lines["music2"]["title"] = "The Rhône", "Waltz in C"
    for name in ("river0", "river1", "river2"):
        lines[name]["text"] += " Like the Rhone."
    lines["music3"]["text"] += " After the waltz in C."
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines.values())
    (corpus,) = find_corpora(data, "test")
    result = measure(corpus, encoder, tmp_path / "kept")
    plain, without = result["retrieval"], result["retrieval_without_mentions"]
    assert (plain["queries"], plain["judgements"]) == (4, 12)
    assert (without["queries"], without["judgements"]) == (3, 2 + 2 + 2)
    assert list(without["systems"]) == list(plain["systems"])
    text = table({"settings": {"split": "test"}, "results": {"small": result}})
    (row,) = [line for line in text.splitlines() if line.startswith("| small")]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["4", "3", "12", "6"]
    for heading in ("test retrieval (", "test retrieval without mentions ("):
        assert f"nDCG@10, {heading}95 % interval; p against tfidf)" in text


def test_a_corpus_without_pairs_has_an_empty_cell(
    data: Path, tmp_path: Path, tiny_checkpoint: Path
) -> None:
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint), threads=1)
    for path in (data / "small").glob("pairs.*"):
        path.unlink()
    (corpus,) = find_corpora(data, "test")
    result = measure(corpus, encoder, tmp_path / "kept")
    assert "pairs" not in result
    assert "AUC" not in table({"settings": {"split": "test"}, "results": {"small": result}})


def test_wrong_folders_and_parts(data: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="'dev' is none of train, valid, test"):
        find_corpora(data, "dev")
    with pytest.raises(CorpusError, match=r"no folder in it has a qrels.tsv"):
        find_corpora(tmp_path / "data" / "unlabelled", "test")
