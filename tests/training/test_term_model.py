"""The model that training begins with, with and without a term channel of its own."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.golden import GOLDEN_TEXTS
from encoder.terms.term_channel import open_term_channel
from encoder.tokenizer import BlockTokenizer
from evaluation.block_archive import (
    BlockArchive,
    BlockArchiveWriter,
    archive_key,
    read_block_archive,
)
from training.errors import TrainingRecipeError
from training.export.create import load_model
from training.models.smith import Smith
from training.recipe import TrainingRecipe
from training.term_channel import fit_channel, open_model
from training.trained_checkpoint import write_trained

TERMS = {"dimension": 4, "buckets": 32, "span": 4}


def recipe(**fields: object) -> TrainingRecipe:
    values = {"name": "r", "steps": 1, "documents": 2, "objective": [{"kind": "halves"}]}
    return TrainingRecipe.parse(values | fields)


@pytest.fixture(scope="module")
def start(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def archive(start: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> BlockArchive:
    tokenizer = BlockTokenizer(start)
    documents = [tokenizer(text) for text in GOLDEN_TEXTS]
    directory = tmp_path_factory.mktemp("archive")
    vectors = [np.zeros((len(d.blocks), start.block_dimension), np.float32) for d in documents]
    named = dict(zip(GOLDEN_TEXTS, documents, strict=True))
    BlockArchiveWriter(directory, archive_key(start)).append(named, vectors)
    return read_block_archive(directory)


def encode(model: Smith, *term_features: Sequence[float]) -> torch.Tensor:
    blocks = torch.randn(2, 3, 32, generator=torch.Generator().manual_seed(1))
    features = [torch.tensor(term_features)] if term_features else []
    with torch.no_grad():
        vectors: torch.Tensor = model.document_encoder(
            blocks, torch.ones(2, 3, dtype=torch.int64), *features
        )
    return vectors


def test_a_start_without_a_channel_grows_one(start: Checkpoint, archive: BlockArchive) -> None:
    requested = recipe(terms=TERMS, dropout=0.4)
    rows = [np.arange(len(archive))]
    channel = fit_channel(start, requested, [archive], rows)
    assert channel
    assert channel.table.width == 4
    model, own = open_model(start, requested, channel), load_model(start)
    assert model.config.dimension == start.dimension + 4
    assert model.config.dropout == 0.4
    assert not model.training
    for name, weight in own.state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    features = np.stack([channel.features(archive.blocks(row)) for row in (0, 1)])
    grown = encode(model, *features.tolist())[:, 4:]
    grown /= grown.norm(dim=1, keepdim=True)
    assert torch.allclose(grown, encode(own), atol=1e-5)
    again = open_model(start, requested, channel)
    assert torch.equal(encode(again, *features.tolist()), encode(model, *features.tolist()))


def test_only_the_named_documents_of_each_corpus_are_read(
    start: Checkpoint, archive: BlockArchive
) -> None:
    requested = recipe(terms=TERMS)
    few, none = np.arange(5), np.arange(0)
    left_out = set(np.concatenate([np.unique(np.concatenate(archive.blocks(5)))]).tolist())
    channel = fit_channel(start, requested, [archive, archive], [few, none])
    assert channel
    read = {token for row in range(5) for block in archive.blocks(row) for token in block}
    unread = sorted(left_out - read)
    assert unread
    rarest = channel.table.weights.max()
    assert (channel.table.weights[unread] == rarest).all()


@pytest.mark.parametrize("documents", [4, 5])
def test_a_new_channel_replaces_the_old_if_documents_suffice(
    tiny_terms: Path, archive: BlockArchive, tmp_path: Path, documents: int
) -> None:
    start = load_checkpoint(tiny_terms)
    requested = recipe(terms={"dimension": 3, "span": 4, "hashed_dimension": 5})
    rows = [np.arange(documents)]
    channel = fit_channel(start, requested, [archive], rows)
    model, own = open_model(start, requested, channel), load_model(start)
    if documents == 4:  # as many as the span has dimensions: too few
        assert channel is None
        assert model.config == own.config
        return
    assert channel
    assert model.config.dimension == own.config.block_part + 3 + 5
    assert channel.features(archive.blocks(1)).shape == (4 + 5,)
    projection = "document_encoder.projection.weight"
    assert torch.equal(model.state_dict()[projection], own.state_dict()[projection])
    written = write_trained(model, channel, start, tmp_path / "written", "again")
    assert open_term_channel(written).features(archive.blocks(1)).shape == (3 + 5,)


def test_a_start_with_a_channel_keeps_it_and_goes_on_from_there(
    tiny_terms: Path, archive: BlockArchive, tmp_path: Path
) -> None:
    start = load_checkpoint(tiny_terms)
    requested, channel = recipe(), open_term_channel(start)
    assert fit_channel(start, requested, [archive], [np.arange(5)]) is None
    model = open_model(start, requested, None)
    for name, weight in load_model(start).state_dict().items():
        assert torch.equal(weight, model.state_dict()[name]), name
    written = write_trained(model, channel, start, tmp_path / "written", "again")
    features = channel.features(archive.blocks(1))
    written_features = open_term_channel(written).features(archive.blocks(1))
    before = encode(load_model(start), features.tolist(), features.tolist())
    after = encode(load_model(written), written_features.tolist(), written_features.tolist())
    assert torch.allclose(before, after, atol=1e-2)


def test_colde_takes_no_term_channel(tiny_colde: Path, archive: BlockArchive) -> None:
    start, requested = load_checkpoint(tiny_colde), recipe(terms=TERMS)
    rows = [np.arange(len(archive))]
    channel = fit_channel(start, requested, [archive], rows)
    with pytest.raises(TrainingRecipeError, match="a colde has no term channel"):
        open_model(start, requested, channel)
    plain = open_model(start, recipe(dropout=0.3), None)
    assert plain.config.dropout == 0.3
