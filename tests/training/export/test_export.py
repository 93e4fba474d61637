import dataclasses
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import safetensors.numpy
import torch
from torch.nn.utils.rnn import pad_sequence

import encoder.golden
from encoder.checkpoint import (
    BLOCK_GRAPH,
    DEFAULT_CHECKPOINT,
    DOCUMENT_GRAPH,
    QUALITY,
    load_checkpoint,
    write_manifest,
)
from encoder.errors import CheckpointError, ParityError, QualityError
from encoder.golden import MINIMUM_COSINE, read_golden_batch
from encoder.onnx_encoder import OnnxEncoder
from encoder.onnx_session import open_session
from encoder.terms.term_channel import open_term_channel
from encoder.tokenizer import BlockTokenizer
from evaluation.quality_gate import Quality, check_quality, write_quality
from tests.kit.towers import encode_tokens
from training.errors import TrainingRecipeError
from training.export.create import Recipe, create_checkpoint, load_model
from training.export.export import compute_golden_batch, export_checkpoint
from training.export.graphs import check_sections, export_section_reader, halve, share_weights
from training.models.architecture import Sections
from training.models.colde import Colde

RECIPES = Path(__file__).parents[3] / "encoder" / "recipes"
# A reranker is made by another command.
ENCODER_RECIPES = [p for p in sorted(RECIPES.glob("*.toml")) if "[pair]" not in p.read_text()]


@pytest.mark.parametrize("name", ["smith", "colde"])
@pytest.mark.parametrize(("blocks", "tokens"), [(1, 1), (1, 14), (5, 7), (33, 3)])
def test_graphs_compute_what_the_model_computes(
    name: str, copy_checkpoint: Callable[[str], Path], blocks: int, tokens: int
) -> None:
    """A recurrent encoder is compared in `tests/encoder/test_document_reading.py`."""
    checkpoint = load_checkpoint(copy_checkpoint(name))
    model = load_model(checkpoint)
    rng = np.random.default_rng(blocks)
    rows = rng.integers(1_000, 8_000, (blocks, tokens))
    ids = torch.tensor(
        [[checkpoint.start_token, *row, checkpoint.end_token] for row in rows.tolist()]
    )
    with torch.no_grad():
        expected_blocks = model.block_encoder(ids, torch.ones_like(ids))
        expected = encode_tokens(model, ids[None], torch.ones_like(ids)[None])[0]
    encoder = OnnxEncoder(checkpoint, precision="fp32")
    vectors = encoder.encode_blocks(rows.tolist())
    assert np.abs(vectors - expected_blocks.numpy()).max() <= 1e-4
    assert np.abs(encoder.encode_document(rows.tolist(), vectors) - expected.numpy()).max() <= 1e-4


@pytest.mark.parametrize(
    ("blocks", "following", "section"), [(1, 1, 0), (1, 9, 1), (33, 5, 2), (7, 64, 40)]
)
def test_the_section_reader_computes_what_the_model_computes(
    tiny_colde: Path, blocks: int, following: int, section: int
) -> None:
    """A section above the last one that has an embedding counts as that one."""
    checkpoint = load_checkpoint(tiny_colde)
    rng = np.random.default_rng(blocks)
    vectors = rng.normal(size=(blocks + following, 32)).astype(np.float32)
    own, other = vectors[:blocks], vectors[blocks:]
    encoder = OnnxEncoder(checkpoint)
    assert encoder.section_reader
    found = encoder.section_vector(own, section, other, section + 1)
    level = load_model(checkpoint).document_encoder
    both = pad_sequence([torch.from_numpy(own), torch.from_numpy(other)], batch_first=True)
    mask = (torch.arange(both.shape[1])[None] < torch.tensor([[blocks], [following]])).float()
    numbers = torch.tensor([min(section, 2), min(section + 1, 2)])
    with torch.no_grad():
        expected = level(both, mask, Sections(numbers, torch.tensor([1, 0])))[0].numpy()
    assert np.abs(found - expected).max() <= 1e-4
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-4)
    attention = encoder.chunk_attention(own, other)
    assert attention is not None
    assert attention.shape == (blocks, following)
    assert np.allclose(attention.sum(1), 1, atol=1e-4)


@pytest.mark.slow
def test_the_mean_has_no_attention(tiny_colde: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_colde, directory := tmp_path / "colde")
    config = load_model(load_checkpoint(directory)).config
    mean = Colde(dataclasses.replace(config, aggregate="mean")).eval()
    export_section_reader(mean, directory / "section_reader.onnx")
    write_manifest(directory)
    encoder = OnnxEncoder(load_checkpoint(directory))
    vectors = np.random.default_rng(0).normal(size=(6, 32)).astype(np.float32)
    assert encoder.chunk_attention(vectors[:4], vectors[4:]) is None
    found = encoder.section_vector(vectors[:4], 0, vectors[4:], 1)
    with torch.no_grad():
        expected = mean.document_encoder(torch.from_numpy(vectors[None, :4]), torch.ones(1, 4))
    assert np.abs(found - expected[0].numpy()).max() <= 1e-4


def test_a_model_without_sections_reads_none(tiny_checkpoint: Path) -> None:
    encoder = OnnxEncoder(load_checkpoint(tiny_checkpoint))
    assert encoder.section_reader is None
    vectors = np.zeros((2, 32), dtype=np.float32)
    for read in (
        lambda: encoder.section_vector(vectors, 0, vectors, 1),
        lambda: encoder.chunk_attention(vectors, vectors),
    ):
        with pytest.raises(CheckpointError, match=r"has no section_reader\.onnx"):
            read()


@pytest.mark.parametrize("part", ["attention.query", "lstm.backwards", "projection"])
def test_a_section_reader_that_differs_is_refused(tiny_colde: Path, part: str) -> None:
    checkpoint = load_checkpoint(tiny_colde)
    model, golden = load_model(checkpoint), read_golden_batch(checkpoint)
    check_sections(model, checkpoint, golden)
    changed = model.document_encoder.get_submodule(part)
    with torch.no_grad():
        for parameter in changed.parameters():
            parameter.add_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    with pytest.raises(ParityError, match=r"section reader, (section_vector|chunk_attention)"):
        check_sections(model, checkpoint, golden)


def test_graphs_with_a_term_channel_match_the_model(tiny_terms: Path) -> None:
    checkpoint = load_checkpoint(tiny_terms)
    model = load_model(checkpoint)
    channel = open_term_channel(checkpoint)
    document = BlockTokenizer(checkpoint)("The harbour of Antwerp was built of stone, and of wood.")
    encoder = OnnxEncoder(checkpoint, precision="fp32")
    vectors = encoder.encode_blocks(document.blocks)
    features = torch.from_numpy(channel.features(document.blocks))[None]
    assert features.shape == (1, 16 + 8)
    with torch.no_grad():
        mask = torch.ones(1, len(vectors), dtype=torch.int64)
        expected = model.document_encoder(torch.from_numpy(vectors)[None], mask, features)[0]
    assert expected.shape == (56,)
    found = encoder.encode_document(document.blocks, vectors)
    assert np.abs(found - expected.numpy()).max() <= 1e-4
    for precision in ("fp16", "int8"):
        smaller = OnnxEncoder(checkpoint, precision=precision)
        smaller.warm_up()
        near = smaller.encode_document(document.blocks, vectors)
        assert MINIMUM_COSINE[precision] <= float(near @ found) < 1 + 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("made", ["tiny_terms", "tiny_checkpoint"])
def test_stored_weights_give_the_stored_graphs(
    request: pytest.FixtureRequest, tmp_path: Path, made: str
) -> None:
    """Bit for bit, in any folder: an archive of block vectors is known by the digest of a graph."""
    before = load_checkpoint(request.getfixturevalue(made))
    again = Path(shutil.copytree(before.directory, tmp_path / "elsewhere"))
    graphs = [name for name in before.files if name.endswith(".onnx")]
    assert len(graphs) == 6
    for name in graphs:
        (again / name).unlink()
        assert b"smith.py" not in (before.directory / name).read_bytes()
    export_checkpoint(load_checkpoint(again), ["fp32", "fp16", "int8"])
    now = load_checkpoint(again).files
    assert {name: now[name] for name in graphs} == {name: before.files[name] for name in graphs}


def test_fp16_graphs_compute_the_same_with_their_arrays_in_the_weights_file(
    tiny_checkpoint: Path, tmp_path: Path
) -> None:
    before = load_checkpoint(tiny_checkpoint)
    whole = Path(shutil.copytree(tiny_checkpoint, tmp_path / "whole"))
    for graph in (BLOCK_GRAPH, DOCUMENT_GRAPH):
        halve(whole / "fp32" / graph, whole / "fp16" / graph)
        sizes = [(folder / "fp16" / graph).stat().st_size for folder in (tiny_checkpoint, whole)]
        assert sizes[0] < 0.9 * sizes[1]
    write_manifest(whole)
    golden = read_golden_batch(before)
    encoders = [OnnxEncoder(c, precision="fp16") for c in (before, load_checkpoint(whole))]
    vectors = [golden.encode(encoder.encode_blocks) for encoder in encoders]
    assert np.array_equal(*vectors)
    documents = [encoder.encode_document(golden.blocks, vectors[0]) for encoder in encoders]
    assert np.array_equal(*documents)


def test_the_digest_of_a_graph_changes_with_what_it_reads(tmp_path: Path) -> None:
    """Archives of block vectors are known by it."""
    path, graphs = tmp_path / "graph.onnx", set()
    shape = "g (float16[1, 32] x, float16[32, 16] w) => (float16[1, 16] y) {y = MatMul(x, w)}"
    for array in np.random.default_rng(1).random((2, 32, 16)).astype(np.float16):
        model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {shape}')
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, "w"))
        del model.graph.input[1]
        onnx.save(model, path)
        weights = safetensors.numpy.save({"w": np.ascontiguousarray(array.T)})
        share_weights(path, weights)
        graphs.add(path.read_bytes())
        session = open_session(path.read_bytes(), path, [("CPUExecutionProvider", {})], weights)
        found = session.run(None, {"x": np.ones((1, 32), np.float16)})[0]
        assert np.allclose(found, array.astype(np.float32).sum(0), rtol=1e-2)
    assert len(graphs) == 2


def test_projections_stay_in_full_precision(tiny_checkpoint: Path) -> None:
    for name in ("block_encoder.onnx", "document_encoder.onnx"):
        graph = onnx.load(tiny_checkpoint / "int8" / name).graph
        kept = [t for t in graph.initializer if t.name.startswith("projection.weight")]
        assert [t.data_type for t in kept] == [onnx.TensorProto.FLOAT]
        assert any(t.data_type == onnx.TensorProto.INT8 for t in graph.initializer)


@pytest.mark.slow
def test_a_failed_export_changes_nothing(
    tiny_bert: Path, tiny_recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = create_checkpoint(tiny_recipe, str(tiny_bert), tmp_path / "c")
    before = sorted(p.name for p in checkpoint.directory.rglob("*"))
    monkeypatch.setitem(encoder.golden.MINIMUM_COSINE, "fp32", 1.1)
    with pytest.raises(ParityError, match="fp32 block encoder"):
        export_checkpoint(checkpoint, ["fp32"])
    assert sorted(p.name for p in checkpoint.directory.rglob("*")) == before


def test_what_cannot_be_exported_is_refused(
    tiny_bert: Path, tiny_recipe: Recipe, tmp_path: Path
) -> None:
    checkpoint = create_checkpoint(tiny_recipe, str(tiny_bert), tmp_path / "c")
    for precisions in ([], ["int4"]):
        with pytest.raises(CheckpointError, match="precision"):
            export_checkpoint(checkpoint, precisions)
    (checkpoint.directory / "weights.safetensors").unlink()
    with pytest.raises(CheckpointError, match="can only be served"):
        export_checkpoint(checkpoint, ["fp32"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architecture": "ernie-doc", "model": {"sentence_layers": 2}},
            "no ernie-doc can begin as the mean",
        ),
        ({"dimension": 48}, "dimension"),
    ],
)
def test_what_cannot_be_made_is_not_begun(
    tiny_bert: Path, tiny_recipe: Recipe, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    recipe = tiny_recipe.model_copy(update=changes)
    with pytest.raises(CheckpointError, match=message):
        create_checkpoint(recipe, str(tiny_bert), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_equal_seeds_give_equal_fingerprints(
    tiny_bert: Path, tiny_recipe: Recipe, tmp_path: Path
) -> None:
    made = [
        create_checkpoint(tiny_recipe, str(tiny_bert), tmp_path / str(n), seed=seed).fingerprint
        for n, seed in enumerate([0, 0, 1])
    ]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("path", ENCODER_RECIPES, ids=lambda path: path.stem)
def test_every_recipe_makes_a_checkpoint(path: Path, tiny_bert: Path, tmp_path: Path) -> None:
    recipe = Recipe.read(path)
    if recipe.initialise_from_bert:  # of the tiny BERT at hand
        layers = {"sentence_layers": 2} if "sentence_layers" in recipe.model else {}
        sizes = {"dimension": 32, "model": recipe.model | layers, "block_length": 32}
        recipe = recipe.model_copy(update=sizes)
    encoder = load_model(create_checkpoint(recipe, str(tiny_bert), tmp_path / "c"))
    ids = torch.randint(1_000, 8_000, (1, 3, 8))
    with torch.no_grad():
        vector = encode_tokens(encoder, ids, torch.ones_like(ids))
    assert vector.shape == (1, recipe.dimension)


SMALL_RECIPE = """
name = "x"
architecture = "{architecture}"
block_length = 16
max_blocks = 4
long_sentence = "split"
language = "en"
dimension = 8
initialise_from_bert = false
begin_as_mean = false
[model]
hidden_size = 8
attention_heads = 2
{model}
"""


@pytest.mark.parametrize(
    ("architecture", "model", "message"),
    [
        ("ernie-doc", "memory_length = 0", "memory_length: must be greater than 0, not 0"),
        ("siamese", "", "unknown architecture; known are smith, colde, ernie-doc"),
        ("smith", "memory_length = 8", "unknown field of the architecture smith"),
        ("smith", "[surprise]", "surprise"),
        ("smith", "name = ", "recipe"),
    ],
)
def test_an_impossible_recipe_is_refused_when_it_is_read(
    tmp_path: Path, architecture: str, model: str, message: str
) -> None:
    (path := tmp_path / "recipe.toml").write_text(
        SMALL_RECIPE.format(architecture=architecture, model=model)
    )
    with pytest.raises(TrainingRecipeError, match=message):
        Recipe.read(path)


def test_shipped_weights_give_the_golden_vectors() -> None:
    """`tests/contract/test_encoders.py` compares the graphs with the same golden batch."""
    checkpoint = load_checkpoint(DEFAULT_CHECKPOINT)
    computed = compute_golden_batch(checkpoint, load_model(checkpoint))
    stored = read_golden_batch(checkpoint)
    assert computed.blocks == stored.blocks
    # Sums are rounded differently on other processors.
    assert np.abs(computed.block_vectors - stored.block_vectors).max() <= 1e-5
    assert np.abs(computed.document_vectors - stored.document_vectors).max() <= 1e-5


GOOD = Quality(300, 12_345, neighbours=0.98)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"neighbours": 0.9799}, r"int8/block_encoder.onnx .*97\.99% .* under 98%"),
        ({"neighbours": float("nan")}, "neighbours"),
    ],
)
def test_what_is_beyond_a_limit_is_refused(change: dict[str, Any], message: str | None) -> None:
    quality = dataclasses.replace(GOOD, **change)
    with pytest.raises(QualityError, match=message) if message else nullcontext():
        check_quality(quality, "int8")


def test_reports_of_other_precisions_stay(tmp_path: Path) -> None:
    write_quality(tmp_path, {"int8": GOOD})
    write_quality(tmp_path, {"fp16": dataclasses.replace(GOOD, neighbours=1.0)})
    report = json.loads((tmp_path / QUALITY).read_text())
    assert {p: r["neighbours"] for p, r in report.items()} == {"int8": 0.98, "fp16": 1.0}
    assert report["int8"]["limits"] == {"neighbours": 0.98}
    assert report["int8"]["documents"] == 300
