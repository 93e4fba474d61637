"""Models that sentence-transformers saved, as encoders; the contract is in tests/contract."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from encoder.blocks import SentenceBlocks
from encoder.checkpoint import Checkpoint
from encoder.errors import CheckpointError
from encoder.opening import find_encoder, open_encoder
from encoder.sentence_model.folder import LARGEST_BYTES
from index.search.calibrate import NO_MAP
from tests.kit.command import Run
from tests.kit.embedding_server import encode_texts
from tests.kit.service_fixtures import TEXTS

GetModel = Callable[[str], Path]
MINILM = os.environ.get("LONGMATCH_TEST_MINILM")  # a folder of all-MiniLM-L6-v2
READ = [
    "harbour",
    "The harbour was built where two rivers meet.",
    " Dr. Smit wrote it! Who would pay?\n\nThe city: 4.5 per cent, été, 今日は天気.",
]


def encode_as_peer(folder: Path, **options: Any) -> Any:
    """Return the vectors of `READ` by sentence-transformers."""
    from sentence_transformers import SentenceTransformer  # seconds, in each worker of the tests

    return SentenceTransformer(str(folder), device="cpu").encode(READ, **options)


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes one."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


@pytest.fixture
def folder(sentence_model: GetModel, tmp_path: Path) -> Path:
    """The folder of a tiny BERT, to be changed."""
    return Path(shutil.copytree(sentence_model("bert"), tmp_path / "model"))


@pytest.mark.parametrize("name", ["bert", "xlm-r", "mpnet", "modernbert", "decoder", "static"])
def test_vectors_are_those_of_sentence_transformers(sentence_model: GetModel, name: str) -> None:
    for options, prompt, dimension in (
        ("", None, None),
        ("#prompt=query", "query", None),
        ("#prompt=document&dimension=16&block=64", "document", 16),
    ):
        encoder = open_encoder(find_encoder(f"{sentence_model(name)}{options}"))
        vectors = encode_texts(encoder, READ)
        expected = encode_as_peer(
            sentence_model(name), prompt_name=prompt, truncate_dim=dimension,
            normalize_embeddings=True,
        )  # fmt: skip
        assert vectors.shape == expected.shape
        assert np.abs(vectors - expected).max() <= 1e-5


if MINILM:

    def test_all_minilm_is_the_sentence_level_that_ships() -> None:
        model = open_encoder(find_encoder(f"{MINILM}#block=64"))
        shipped = open_encoder(find_encoder("best"), precision="fp16")
        text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
        blocks = shipped.read(text).blocks
        assert model.read(text).blocks == blocks
        found = [encoder.encode_blocks(blocks) for encoder in (model, shipped)]
        nearest = [np.argsort(-(vectors @ vectors.T), axis=1)[:, 1:11] for vectors in found]
        same = [len({*here} & {*there}) / 10 for here, there in zip(*nearest, strict=True)]
        print(f"{np.mean(same):.4f} of the 10 nearest of {len(blocks)} blocks are the same")  # noqa: T201
        assert np.mean(same) >= 0.98
        assert (found[0] * found[1]).sum(axis=1).min() >= 0.999


def test_a_graph_computes_what_torch_does(sentence_model: GetModel, tmp_path: Path) -> None:
    graph = Path(shutil.copytree(sentence_model("onnx"), tmp_path / "graph"))
    edit(graph / "config.json", auto_map={"AutoModel": "x.Y"})  # code that a graph does without
    by_graph = open_encoder(find_encoder(str(graph)))
    folder = Path(shutil.copytree(sentence_model("onnx"), tmp_path / "model"))
    (folder / "onnx" / "torch.safetensors").rename(folder / "model.safetensors")
    shutil.rmtree(folder / "onnx")
    expected = encode_texts(open_encoder(find_encoder(str(folder))), READ)
    assert (by_graph.provider, by_graph.precision) == ("CPUExecutionProvider", "fp32")
    assert np.abs(encode_texts(by_graph, READ) - expected).max() <= 1e-5


def test_a_folder_of_model2vec_is_read(sentence_model: GetModel, tmp_path: Path) -> None:
    """Tokens share vectors, in half precision, and have weights."""
    folder = Path(shutil.copytree(sentence_model("static"), tmp_path / "model"))
    path = next(folder.rglob("model.safetensors"))
    table = load_file(path)["embedding.weight"]
    random = np.random.default_rng(4)
    parts = {
        "embeddings": table[:200].astype(np.float16),
        "mapping": random.integers(200, size=len(table)),
        "weights": random.random(len(table), dtype=np.float32),
    }
    save_file(parts, path)
    vectors = encode_texts(open_encoder(find_encoder(str(folder))), READ)
    assert np.abs(vectors - encode_as_peer(folder)).max() <= 1e-5


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"vectors": np.ones((9, 9))}, "has no table of vectors for tokens"),
        ({"embeddings": np.ones(9)}, "has no table of vectors for tokens"),
        ({"embeddings": np.ones((9, 9))}, "has 9 vectors for [0-9]+ tokens"),
        (None, "does not load"),
    ],
)
def test_a_damaged_table_is_refused(
    sentence_model: GetModel, tmp_path: Path, tensors: Any, message: str
) -> None:
    folder = Path(shutil.copytree(sentence_model("static"), tmp_path / "model"))
    path = next(folder.rglob("model.safetensors"))
    if tensors is None:
        path.write_bytes(b"x" * 100)
    else:
        save_file(tensors, path)
    with pytest.raises(CheckpointError, match=message):
        find_encoder(str(folder))


def test_old_settings_are_understood(folder: Path) -> None:
    """Those that sentence-transformers wrote before version 6; a prompt may not be pooled."""
    switches = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    path = folder / "1_Pooling" / "config.json"
    old = {"word_embedding_dimension": 32, **switches, "include_prompt": False}
    path.write_text(json.dumps(old))
    edit(folder / "sentence_bert_config.json", max_seq_length=96)
    edit(folder / "config_sentence_transformers.json", default_prompt_name="query")
    encoder = open_encoder(find_encoder(str(folder)))
    assert encoder.checkpoint.block_length == 96
    expected = encode_as_peer(folder)
    vectors = encode_texts(encoder, READ)
    assert np.abs(vectors - expected).max() <= 1e-5


def test_offsets_are_where_the_blocks_are(sentence_model: GetModel) -> None:
    text = "\n  " + " ".join(f"The harbour number {n} is old.\n" for n in range(40))
    for name in ("bert", "xlm-r", "decoder"):
        encoder = open_encoder(find_encoder(f"{sentence_model(name)}#block=64&prompt=query"))
        read: SentenceBlocks = encoder.read(text)
        starts, ends = zip(*read.offsets, strict=True)
        assert len(read.blocks) > 3
        assert text[starts[0] :].startswith("The harbour")
        for end, start in zip(ends, [*starts[1:], len(text)], strict=True):
            assert not text[end:start].strip()


def test_what_vectors_depend_on_is_in_the_fingerprint(folder: Path) -> None:
    def fingerprint(options: str = "") -> str:
        return find_encoder(f"{folder}{options}").fingerprint

    options = ("", "#block=64", "#dimension=16", "#prompt=query", "#prompt=document")
    found = [fingerprint(option) for option in options]
    assert fingerprint("#block=128") == found[0]  # the default
    edit(folder / "config_sentence_transformers.json", prompts={"query": "other: "})
    found.append(fingerprint("#prompt=query"))
    edit(folder / "1_Pooling" / "config.json", pooling_mode="cls")
    found.append(fingerprint())
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][7, 7] += 1
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    found.append(fingerprint())
    assert len(set(found)) == len(found)


def classify(folder: Path) -> None:
    (folder / "modules.json").unlink()
    edit(folder / "config.json", architectures=["BertForSequenceClassification"])


def grow(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(LARGEST_BYTES + 1)


def bring_modules(folder: Path) -> None:
    modules = [{"type": "custom.Transformer", "path": ""}, {"type": "x.Pooling", "path": "p"}]
    (folder / "modules.json").write_text(json.dumps(modules))


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda at: (at / "tokenizer.json").unlink(), "", "tokenizer.json is missing"),
        (lambda at: (at / "model.safetensors").rename(at / "x.bin"), "", "only as pickle"),
        (lambda at: (at / "model.safetensors").unlink(), "", "weights are missing"),
        (grow, "", "16.0 GiB, over the limit of 16"),
        (classify, "", "a reranker"),
        (bring_modules, "", "code that a model brings is never run"),
        (lambda at: edit(at / "config.json", auto_map={"AutoModel": "x.Y"}), "", "auto_map"),
        (lambda at: (at / "modules.json").write_text("["), "", "modules.json is not JSON"),
        (lambda at: edit(at / "1_Pooling/config.json", pooling_mode="max"), "", "pooling .'max'"),
        (lambda at: edit(at / "tokenizer_config.json", model_max_length=32), "", "reads 32 tokens"),
        (lambda at: (at / "modules.json").write_text("[{}]"), "", "not understood: KeyError"),
        (None, "#block=129", "block=129: must be from 64 to 128"),
        (None, "#dimension=33", "dimension=33: must be from 1 to 32"),
        (None, "#prompt=poem", "no prompt 'poem'; it has: document, query"),
        (None, "#block=64&block=64", "option 'block=64'"),
        (None, "#blocks=64", "options, each once, are block, dimension"),
        (None, "#block=many", "must be whole numbers"),
        (None, "#language=German", "language=German"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(
    folder: Path, change: Callable[[Path], None] | None, options: str, message: str
) -> None:
    if change is not None:
        change(folder)
    with pytest.raises(CheckpointError, match=message) as refused:
        find_encoder(f"{folder}{options}")
    assert "\n" not in str(refused.value)


def test_damaged_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(CheckpointError, match="does not load"):
        open_encoder(find_encoder(str(folder)))


def test_a_name_that_is_not_here_is_asked_of_the_hub(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was downloaded before is found offline."""
    cache = tmp_path / "hub"
    model = cache / "models--owner--tiny"
    shutil.copytree(folder, model / "snapshots" / ("0" * 40))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    found: Checkpoint = find_encoder("owner/tiny#block=64")
    assert (found.name, found.block_length, found.source) == ("tiny", 64, "owner/tiny#block=64")
    with pytest.raises(CheckpointError, match="owner/none: there is no such folder, and the hub"):
        find_encoder("owner/none")


def test_index_and_match(
    longmatch: Run, sentence_model: GetModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LONGMATCH_ENCODER")
    corpus = tmp_path / "corpus.jsonl"
    texts = TEXTS | {f"{n}": f"Number {n} is followed by {n + 1}." for n in range(96)}
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    corpus.write_text("\n".join(lines))
    name = f"{sentence_model('decoder')}#block=64&prompt=document"
    answer = longmatch("index", corpus, "--encoder", name)
    assert (answer.status, "100 encoded" in answer.err) == (0, True)
    query = tmp_path / "query.txt"
    query.write_text(TEXTS["bees"])
    for mode, why in (("semantic", NO_MAP), ("hybrid", None), ("lexical", None)):
        answer = json.loads(longmatch("match", query, "--mode", mode, "--json").out)
        assert (answer["matches"][0]["id"], answer["no_probability"]) == ("bees", why)
        assert (answer["matches"][0]["probability"] or 0) > 0.5 or why
    other = longmatch("index", corpus, "--encoder", name.replace("document", "query"))
    assert (other.status, "longmatch reencode" in other.err) == (2, True)
