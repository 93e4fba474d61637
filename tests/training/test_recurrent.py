"""Training of a recurrent encoder: whole documents, from their tokens."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from encoder.checkpoint import Checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from evaluation.block_archive import BlockArchiveWriter, archive_key, read_block_archive
from training.batch import encode
from training.collate import Reader, encode_slices, new_objective
from training.data.sampling import Batch, DocumentSlice
from training.errors import TrainingRecipeError
from training.export.create import load_model
from training.models.ernie_doc import ErnieDoc
from training.objectives import step_generator
from training.recipe import TrainingRecipe, check_recurrence

TEXTS = ["The river runs far. " * n for n in (9, 1, 4)]
ALL = tuple(DocumentSlice(0, row) for row in range(3))
MATCHES = np.eye(2, 3, dtype=bool)
WHOLE = {"trained": "all", "blocks": 8}


@pytest.fixture(scope="module")
def reader(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    """An archive of tokens alone, as training makes it."""
    tokenizer = BlockTokenizer(checkpoint)
    directory = tmp_path_factory.mktemp("archive")
    documents = [tokenizer(text) for text in TEXTS]
    key = archive_key(checkpoint, precision="fp32", tokens_only=True)
    nothing = [np.empty((len(document.blocks), 0), np.float32) for document in documents]
    named = dict(zip(TEXTS, documents, strict=True))
    BlockArchiveWriter(directory, key).append(named, nothing)
    return Reader([read_block_archive(directory, key)], checkpoint, 8, trained_blocks=8)


def test_documents_are_encoded_as_they_are_served(
    checkpoint: Checkpoint, model: ErnieDoc, reader: Reader
) -> None:
    served = OnnxEncoder(checkpoint, precision="fp32")
    tokenizer = BlockTokenizer(checkpoint)
    expected = served.encode([tokenizer(text) for text in TEXTS]).document_vectors
    assert np.abs(encode_slices(model, reader, ALL, from_tokens=True) - expected).max() < 1e-4
    batch = reader.batch(ALL, step_generator(0, 1))
    chunks = replace(reader, chunk=2).chunks(ALL, step_generator(0, 1))
    with torch.no_grad():
        assert np.abs(encode(model, batch).numpy() - expected).max() < 1e-4
        parts = torch.cat([encode(model, part) for part in chunks])
    assert np.abs(parts.numpy() - expected).max() < 1e-4


def test_a_slice_is_a_document_of_its_own(model: ErnieDoc, reader: Reader) -> None:
    part = DocumentSlice(0, 0, np.array([1, 2]))
    (alone,) = encode_slices(model, reader, [part], from_tokens=True)
    (whole,) = encode_slices(model, reader, ALL[:1], from_tokens=True)
    assert np.abs(alone - whole).max() > 1e-4


@pytest.mark.parametrize(
    ("objective", "sampled"),
    [
        ({"kind": "wp"}, Batch(ALL)),
        ({"kind": "reorder", "chunks": 2}, Batch(ALL)),
        (
            {"kind": "links"},
            Batch(ALL[:2] + ALL, {"positives": MATCHES, "ignored": np.zeros_like(MATCHES)}),
        ),
    ],
    ids=["wp", "reorder", "links"],
)
def test_every_kind_reaches_the_sentence_level(
    objective: dict[str, Any], sampled: Batch, checkpoint: Checkpoint, reader: Reader
) -> None:
    model = load_model(checkpoint)
    recipe = recipe_of(objective, sentence_level=WHOLE)
    made = new_objective(recipe.objectives[0], lambda _: sampled, reader, model.config, 1)
    losses = made.sample(step_generator(0, 1))(model)
    torch.stack(list(losses.values())).sum().backward()
    gradient = model.block_encoder.layers[0].attention.distance_embedding.weight.grad
    assert gradient is not None
    assert gradient.any()


def recipe_of(*objectives: dict[str, Any], **more: Any) -> Any:
    table = {"name": "t", "steps": 1, "documents": 2, "max_blocks": 8, "objective": [*objectives]}
    return TrainingRecipe.parse(table | more)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (recipe_of({"kind": "links"}), 'trained = "frozen" takes stored block vectors'),
        (
            recipe_of({"kind": "links"}, sentence_level=WHOLE | {"blocks": 7}),
            "blocks is 7, under the 8 of max_blocks",
        ),
        (
            recipe_of({"kind": "sp"}, {"kind": "wp"}, sentence_level=WHOLE),
            'objective "sp" takes vectors of lone blocks',
        ),
        (
            recipe_of({"kind": "links"}, sentence_level=WHOLE, terms={"dimension": 8}),
            "has no term channel",
        ),
    ],
    ids=["frozen", "some blocks", "masked blocks", "terms"],
)
def test_what_a_recurrent_encoder_cannot_learn_is_said(recipe: Any, message: str) -> None:
    check_recurrence(recipe_of({"kind": "reorder"}, sentence_level=WHOLE), recurrent=True)
    with pytest.raises(TrainingRecipeError, match=message):
        check_recurrence(recipe, recurrent=True)


def test_an_encoder_of_lone_blocks_learns_no_order() -> None:
    check_recurrence(recipe_of({"kind": "links"}), recurrent=False)
    with pytest.raises(TrainingRecipeError, match='"reorder" pretrains a recurrent encoder'):
        check_recurrence(recipe_of({"kind": "reorder"}, sentence_level=WHOLE), recurrent=False)


def test_a_batch_without_tokens_is_refused(model: ErnieDoc, reader: Reader) -> None:
    with pytest.raises(ValueError, match="no block to be read from its tokens"):
        encode(model, reader.batch(ALL, None))
