from pathlib import Path

import numpy as np
import pytest
import torch

from encoder.checkpoint import Checkpoint, load_checkpoint
from encoder.onnx_encoder import OnnxEncoder
from encoder.tokenizer import BlockTokenizer
from evaluation.block_archive import BlockArchiveWriter, archive_key, read_block_archive
from training.batch import encode
from training.collate import Reader, Sampler, encode_slices, new_objective
from training.data import sampling
from training.export.create import load_model
from training.losses import supervised_contrastive
from training.models.architecture import EncoderConfig, EncoderModel
from training.models.smith import Smith
from training.objectives import Objective, step_generator
from training.recipe import TrainingRecipe

TEXTS = [" ".join(f"The river {word} runs {n}." for n in range(9)) for word in ("far", "on", "by")]


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def model(checkpoint: Checkpoint) -> Smith:
    return load_model(checkpoint)


@pytest.fixture(scope="module")
def reader(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    encoder = OnnxEncoder(checkpoint, precision="fp32", threads=1)
    tokenizer = BlockTokenizer(checkpoint)
    directory = tmp_path_factory.mktemp("archive")
    documents = [tokenizer(text) for text in TEXTS]
    writer = BlockArchiveWriter(directory, archive_key(checkpoint, precision="fp32"))
    named = dict(zip(TEXTS, documents, strict=True))
    writer.append(named, [encoder.encode_blocks(d.blocks) for d in documents])
    return Reader([read_block_archive(directory)], checkpoint, max_blocks=4, trained_blocks=2)


def test_cached_and_computed_blocks_agree(model: Smith, reader: Reader) -> None:
    parts = [
        sampling.DocumentSlice(0, 2),
        sampling.DocumentSlice(0, 0, np.array([1, 3])),
        sampling.DocumentSlice(0, 1),
    ]
    cached = encode_slices(model, reader, parts)
    computed = encode_slices(model, reader, parts, from_tokens=True)
    assert cached.shape == (3, 32)
    assert np.allclose(np.linalg.norm(cached, axis=1), 1, atol=1e-5)
    assert np.allclose(cached, computed, atol=2e-3)  # float16 is between the two
    alone = encode_slices(model, reader, parts[1:2])
    assert np.allclose(cached[1], alone[0], atol=1e-5)
    assert not np.allclose(
        cached[1], encode_slices(model, reader, [sampling.DocumentSlice(0, 0)])[0], atol=1e-3
    )


def test_a_step_reads_some_blocks_as_tokens(reader: Reader, checkpoint: Checkpoint) -> None:
    batch = reader.batch(
        [sampling.DocumentSlice(0, 0), sampling.DocumentSlice(0, 1, np.array([2]))],
        step_generator(0, 1),
    )
    assert batch.block_mask.sum(1).tolist() == [4, 1]
    assert batch.texts is not None
    assert batch.texts.documents.tolist() == [0, 0, 1]
    assert batch.texts.places.tolist()[2] == 0
    whole = reader.archives[0].blocks(1)
    ids = batch.texts.input_ids[2][batch.texts.attention_mask[2] == 1].tolist()
    assert ids == [checkpoint.start_token, *whole[2], checkpoint.end_token]
    assert reader.batch([sampling.DocumentSlice(0, 0)], None).texts is None


PARTS = (sampling.DocumentSlice(0, 0), sampling.DocumentSlice(0, 1))
ALL = (*PARTS, sampling.DocumentSlice(0, 2))
CUT = tuple(
    sampling.DocumentSlice(0, row, np.arange(2 * number, 2 * number + 2), number, 2)
    for row in (0, 1, 2)
    for number in (0, 1)
)
MATCHES = np.eye(2, 3, dtype=bool)
BATCHES = {
    "pairs": sampling.Batch(PARTS + PARTS[::-1], {"labels": np.array([True, False])}),
    "links": sampling.Batch(PARTS + ALL, {"positives": MATCHES, "ignored": np.zeros_like(MATCHES)}),
    "supcon": sampling.Batch(ALL, {"labels": np.array([0, 0, 1])}),
    "sections": sampling.Batch(CUT, {"labels": np.array([0, 0, 1, 1, 2, 2])}),
    "distil": sampling.Batch(ALL, {"similarities": np.eye(3, dtype=np.float32)}),
    "sp": sampling.Batch(ALL),
    "wp": sampling.Batch(ALL),
}


def objective_of(
    table: dict[str, object], sampler: Sampler, reader: Reader, config: EncoderConfig, seed: int = 0
) -> Objective[EncoderModel]:
    level = {"trained": "all", "blocks": 2}
    recipe = {
        "name": "r", "steps": 1, "documents": 6, "objective": [table], "sentence_level": level,
    }  # fmt: skip
    (objective,) = TrainingRecipe.parse(recipe).objectives
    return new_objective(objective, sampler, reader, config, seed)


COSINE = {"loss": "cosine"}
KINDS = [*((kind, {}) for kind in BATCHES), ("pairs", COSINE)]


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_every_kind_has_a_loss(
    kind: str, more: dict[str, object], model: Smith, reader: Reader
) -> None:
    def loss_of(seed: int) -> float:
        table = {"kind": kind, **more}
        objective = objective_of(table, lambda _: BATCHES[kind], reader, model.config, seed)
        with torch.no_grad():
            (loss,) = objective.sample(step_generator(0, 1, 2))(model).values()
        return loss.item()

    assert np.isfinite(loss_of(1))
    assert loss_of(1) == loss_of(1)  # heads that begin at random are seeded
    if more is COSINE:  # one pair, once as a match and once as none: 1 - cosine, and cosine
        assert loss_of(1) == pytest.approx(0.5, abs=0.05)  # dropout is not that of the other row


def test_what_is_ignored_is_no_negative(model: Smith, reader: Reader) -> None:
    batch = sampling.Batch(PARTS + ALL, {"positives": MATCHES, "ignored": ~MATCHES})
    made = objective_of({"kind": "links"}, lambda _: batch, reader, model.config)
    assert made.sample(step_generator(0, 1))(model)["vectors"].item() == 0


def test_samples_depend_on_the_generator_alone(model: Smith, reader: Reader) -> None:
    sampled: list[float] = []

    def sample(random: np.random.Generator) -> sampling.Batch:
        sampled.append(random.random())
        return BATCHES["distil"]

    objective = objective_of({"kind": "distil"}, sample, reader, model.config)
    for step in (1, 2, 1):
        objective.sample(step_generator(0, step))
    assert sampled[0] == sampled[2] != sampled[1]


def test_labels_are_learned_with_the_temperature_given(tiny_colde: Path, reader: Reader) -> None:
    model, labels = load_model(load_checkpoint(tiny_colde)), [1, 1, 1, 1, 0, 0]
    table = {"kind": "supcon", "temperature": 0.5}
    batch = sampling.Batch(CUT, {"labels": np.array(labels)})
    made = objective_of(table, lambda _: batch, reader, model.config)
    with torch.no_grad():
        vectors = encode(model, reader.batch(CUT, step_generator(0, 1)))
        found = made.sample(step_generator(0, 1))(model)["vectors"].item()
    expected = supervised_contrastive(vectors, torch.tensor(labels), 0.5)
    assert found == pytest.approx(expected.item(), abs=1e-5)


def test_sections_reach_colde_as_sections(tiny_colde: Path, reader: Reader) -> None:
    batch = reader.batch(CUT, None)
    assert batch.sections is not None
    assert batch.sections.successors.tolist() == [1, 0, 3, 2, 5, 4]
    model = load_model(load_checkpoint(tiny_colde))
    with torch.no_grad():
        cut = encode(model, batch)
    alone = encode_slices(model, reader, [sampling.DocumentSlice(0, 0, np.array([0, 1]))])
    assert cut.shape == (6, 32)
    assert np.abs(cut[0].numpy() - alone[0]).max() > 1e-4  # the other section is seen
