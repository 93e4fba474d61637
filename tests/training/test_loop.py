"""The loop: what it trains, when it stops, what it keeps, and what it refuses."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.batch import DocumentArrays, DocumentBatch, collate, encode, split
from training.errors import NotFiniteError, ResumeError, TrainingRecipeError
from training.loop import (
    TrainingPlan,
    Validated,
    choose_trained,
    new_optimiser,
    rate_share,
    set_rates,
    train,
    trained_parameters,
)
from training.losses import (
    contrastive,
    pair_cross_entropy,
    relation_distillation,
    supervised_contrastive,
)
from training.models.smith import Smith
from training.objectives import Objective, Task, Temperature, step_generator, vectors_task
from training.progress import TrainingProgress
from training.recipe import OptimiserRecipe, SentenceLevelRecipe, TrainingRecipe
from training.run_files import BEST, CURVE, STATE, RunState, read_curve

LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])


def alike(vectors: Tensor) -> Tensor:
    return supervised_contrastive(vectors, LABELS, 0.1)


@dataclass
class Bench:
    """A model with an objective to learn: documents 0, 3, 6 are of one kind, and so on."""

    model: Smith
    chunks: list[DocumentBatch]
    directory: Path
    figures: list[float]

    def plan(self, **recipe: Any) -> TrainingPlan:
        def sample(generator: torch.Generator) -> Task:
            return vectors_task(self.chunks, alike)

        def validate(model: Smith) -> Validated:
            assert not model.training
            assert not torch.is_grad_enabled()
            return Validated(self.figures.pop(0) if self.figures else 0.0)

        values = {
            "name": "bench", "steps": 6, "documents": 9, "max_blocks": 8, "validation_interval": 2,
            "checkpoint_interval": 2, "objective": [{"kind": "supcon"}],
        }  # fmt: skip
        return TrainingPlan(
            recipe=TrainingRecipe.parse(values | recipe),
            objectives=[Objective("supcon", 1.0, sample, Temperature(0.1))],
            validate=validate,
            data_fingerprint="of the data",
        )

    def train(self, plan: TrainingPlan) -> RunState:
        return train(self.model, plan, self.directory, TrainingProgress())

    def losses(self) -> list[float]:
        records = read_curve(self.directory / CURVE)
        return [record["loss"] for record in records if "loss" in record]

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.clone() for name, weight in self.model.state_dict().items()}

    def changed(self, before: Mapping[str, Tensor]) -> set[str]:
        after = self.model.state_dict()
        return {name for name in before if not torch.equal(before[name], after[name])}


@pytest.fixture
def bench(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays], tmp_path: Path
) -> Bench:
    return Bench(
        tiny_model(), [collate(documents)], tmp_path / "run", [float(i) for i in range(99)]
    )


def test_the_loss_falls_and_the_sentence_level_stays(bench: Bench) -> None:
    bench.chunks = [replace(bench.chunks[0], texts=None)]
    before = bench.weights()
    progress = bench.train(bench.plan(steps=30))
    losses = bench.losses()
    assert losses[-1] < losses[0] / 2
    assert progress.step == progress.best_step == 30
    changed = bench.changed(before)
    assert "document_encoder.projection.weight" in changed
    assert not any(name.startswith("block_encoder") for name in changed)
    assert not bench.model.training


@pytest.mark.parametrize(
    ("level", "inside", "outside"),
    [
        (
            {"trained": "last", "layers": 1, "blocks": 2},
            ["block_encoder.layers.1.output.weight", "block_encoder.projection.weight"],
            ["block_encoder.layers.0.output.weight", "block_encoder.token_embedding.weight"],
        ),
        (
            {"trained": "all", "blocks": 2},
            ["block_encoder.layers.0.output.weight", "block_encoder.token_embedding.weight"],
            [],
        ),
    ],
)
def test_the_sentence_level_is_trained_as_far_as_the_recipe_says(
    bench: Bench, level: dict[str, Any], inside: list[str], outside: list[str]
) -> None:
    before = bench.weights()
    bench.train(bench.plan(sentence_level=level))
    changed = bench.changed(before)
    assert changed >= set(inside)
    assert not changed & set(outside)


def test_the_best_weights_are_kept_and_patience_ends_the_run(bench: Bench) -> None:
    bench.figures = [0.1, 0.5, 0.4, 0.3, 9.9]
    progress = bench.train(bench.plan(steps=100, patience=2))
    assert progress == RunState(step=6, best_step=2, best_figure=0.5, waited=2)
    best = bench.weights()
    with torch.no_grad():
        bench.model.document_encoder.projection.weight.zero_()
    assert bench.train(bench.plan(steps=100, patience=2)) == progress  # done: nothing to do
    assert not bench.changed(best)
    assert bench.figures == [9.9]  # no validation was needed


def test_of_losses_the_lowest_is_best(bench: Bench) -> None:
    bench.figures = [0.9, 0.2, 0.4, 0.2, 0.1]
    plan = replace(bench.plan(steps=100, patience=2), lower_is_better=True)
    assert bench.train(plan) == RunState(step=6, best_step=2, best_figure=0.2, waited=2)
    assert bench.figures == [0.1]


def test_what_training_cannot_improve_stays_as_it_was(bench: Bench) -> None:
    bench.figures = [0.9, 0.1, 0.2, 0.3]
    before = bench.weights()
    assert bench.train(bench.plan()).best_step == 0
    assert not bench.changed(before)


def test_bf16_learns_with_weights_in_fp32(bench: Bench, documents: list[DocumentArrays]) -> None:
    bench.chunks = [replace(collate(part), texts=None) for part in split(documents, 4)]
    bench.train(bench.plan(steps=30, precision="bf16"))
    losses = bench.losses()
    assert losses[-1] < losses[0] / 2
    assert {weight.dtype for weight in bench.model.state_dict().values()} == {torch.float32}


def test_gradients_are_clipped_and_told_as_they_were(bench: Bench) -> None:
    before = bench.weights()
    bench.train(bench.plan(steps=1, optimiser={"gradient_clip": 1e-12, "weight_decay": 0.0}))
    norm = read_curve(bench.directory / CURVE)[1]["gradient_norm"]
    assert norm > 0.1
    moved = max((bench.weights()[name] - before[name]).abs().max() for name in before)
    assert moved < 1e-5  # Adam's epsilon outweighs a gradient this short


def test_objectives_are_summed_by_weight_and_draw_apart(bench: Bench) -> None:
    sampled: dict[str, list[int]] = {"a": [], "b": []}

    def sampler_of(name: str) -> Callable[[torch.Generator], Task]:
        def sample(generator: torch.Generator) -> Task:
            sampled[name].append(int(torch.randint(10**9, (), generator=generator)))
            return vectors_task(bench.chunks, alike)

        return sample

    objectives = [Objective("a", 1.0, sampler_of("a")), Objective("b", 0.25, sampler_of("b"))]
    plan = replace(bench.plan(steps=4), objectives=objectives)
    bench.train(plan)
    record = read_curve(bench.directory / CURVE)[1]
    assert record["loss"] == pytest.approx(record["loss.a"] + 0.25 * record["loss.b"])
    assert len(set(sampled["a"] + sampled["b"])) == 8
    expected = int(torch.randint(10**9, (), generator=step_generator(0, 1, 1, 0)))
    assert sampled["a"][0] == expected


def test_gradients_have_the_weight_of_the_objective(bench: Bench) -> None:
    norms = []
    for weight in (1.0, 0.25):
        plan = bench.plan(steps=1, optimiser={"document_rate": 0.0})
        objectives = [replace(plan.objectives[0], weight=weight)]
        bench.directory = bench.directory.with_name(f"weight-{weight}")
        bench.train(replace(plan, objectives=objectives))
        norms.append(read_curve(bench.directory / CURVE)[1]["gradient_norm"])
    assert norms[1] == pytest.approx(norms[0] / 4, rel=1e-4)


def test_pairs_and_relations_are_learned(bench: Bench) -> None:
    batch = replace(bench.chunks[0], texts=None)
    labels = torch.tensor([1, 0, 1, 0])
    pairs = DocumentBatch(batch.block_vectors[:8], batch.block_mask[:8])
    teacher = torch.rand(9, 9, generator=torch.Generator().manual_seed(1))

    def of_pairs(vectors: Tensor) -> Tensor:
        first, second = vectors.chunk(2)
        return pair_cross_entropy((first * second).sum(1), labels)

    def of_relations(vectors: Tensor) -> Tensor:
        return relation_distillation(vectors, teacher, 0.1, 0.1)

    objectives = [
        Objective("pairs", 1.0, lambda _: vectors_task([pairs], of_pairs)),
        Objective("distil", 1.0, lambda _: vectors_task([batch], of_relations)),
    ]
    bench.train(replace(bench.plan(steps=40), objectives=objectives))
    steps = [r for r in read_curve(bench.directory / CURVE) if "loss" in r]
    for name in ("loss.pairs", "loss.distil"):
        assert steps[-1][name] < steps[0][name] / 1.5
    first, second = encode(bench.model, pairs).chunk(2)
    assert ((first * second).sum(1) > 0).tolist() == [True, False, True, False]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_ends_the_run(bench: Bench, value: float) -> None:
    plan, sampled = bench.plan(), []

    def sample(generator: torch.Generator) -> Task:
        sampled.append(1)
        factor = value if len(sampled) == 4 else 1.0
        return vectors_task(bench.chunks, lambda vectors: vectors.sum() * factor)

    plan = replace(plan, objectives=[Objective("broken", 1.0, sample)])
    with pytest.raises(NotFiniteError, match=r"step 4: .*of objective broken is (nan|-?inf)"):
        bench.train(plan)
    assert (bench.directory / STATE).exists()
    sampled.append(1)  # the fifth draw is sound again
    assert bench.train(plan).step == 6
    assert len(bench.losses()) == 6


def test_a_gradient_or_a_validation_that_is_no_number_is_named(bench: Bench) -> None:
    def sample(generator: torch.Generator) -> Task:
        return vectors_task(bench.chunks, lambda vectors: (vectors - vectors.detach()).sum().sqrt())

    plan = replace(bench.plan(), objectives=[Objective("root", 1.0, sample)])
    with pytest.raises(NotFiniteError, match=r"step 1: the gradient is (nan|inf)"):
        bench.train(plan)
    bench.figures = [math.nan]
    bench.directory = bench.directory.with_name("other")
    with pytest.raises(NotFiniteError, match="step 0: the figure of validation is nan"):
        bench.train(bench.plan())


def test_the_state_of_another_run_is_refused(bench: Bench) -> None:
    bench.train(bench.plan())
    with pytest.raises(ResumeError, match="its recipe differs"):
        bench.train(bench.plan(seed=1))
    with pytest.raises(ResumeError, match="its data, or the checkpoint"):
        bench.train(replace(bench.plan(), data_fingerprint="other"))
    wider = [Objective("supcon", 1.0, bench.plan().objectives[0].sample, Temperature("learned"))]
    with pytest.raises(ResumeError, match=r"does not fit the model: head\.supcon\.logarithm"):
        bench.train(replace(bench.plan(), objectives=wider))


@pytest.mark.parametrize("name", [STATE, BEST])
def test_a_broken_state_is_named(bench: Bench, name: str) -> None:
    bench.train(bench.plan())
    (bench.directory / name).write_bytes(b"no tensors")
    with pytest.raises(ResumeError, match=name):
        bench.train(bench.plan())


def test_a_recipe_that_does_not_fit_the_model_is_refused(bench: Bench) -> None:
    with pytest.raises(TrainingRecipeError, match="max_blocks is 9, and the model reads 8"):
        bench.train(bench.plan(max_blocks=9))
    level = {"trained": "last", "layers": 3, "blocks": 1}
    with pytest.raises(TrainingRecipeError, match="sentence level has 2"):
        bench.train(bench.plan(sentence_level=level))


def test_a_run_that_is_stopped_is_saved_and_goes_on(bench: Bench) -> None:
    answers = iter([False, False, True])
    plan = replace(bench.plan(validation_interval=9), stop=lambda: next(answers))
    bench.figures = [0.1, 0.7, 0.2]
    assert bench.train(plan) == RunState(step=3, best_step=3, best_figure=0.7, waited=0)
    assert bench.train(bench.plan(validation_interval=9)).step == 6
    assert len(bench.losses()) == 6


def test_an_observer_hears_of_all(bench: Bench) -> None:
    heard: list[object] = []

    class Listener:
        def started(self, step: int, steps: int) -> None:
            heard.append(("started", step, steps))

        def stepped(self, step: int, figures: Mapping[str, float]) -> None:
            assert figures.keys() >= {"loss", "loss.supcon", "gradient_norm", "rate_share"}
            heard.append(step)

        def validated(self, step: int, figure: float, *, best: bool) -> None:
            heard.append(("validated", step, figure, best))

    bench.figures = [0.5, 0.4]
    train(bench.model, bench.plan(steps=2), bench.directory, Listener())
    assert heard == [
        *(("started", 0, 2), ("validated", 0, 0.5, True), 1, 2, ("validated", 2, 0.4, False)),
    ]


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("linear", [1 / 3, 2 / 3, 1.0, 0.75, 0.5, 0.25]),
        ("cosine", [1 / 3, 2 / 3, 1.0, 0.853553, 0.5, 0.146447]),
    ],
)
def test_rates_run_as_the_recipe_says(decay: str, expected: list[float]) -> None:
    recipe = OptimiserRecipe(warm_up=2, decay=decay)
    shares = [rate_share(step, 6, recipe) for step in range(1, 7)]
    assert shares == pytest.approx(expected, abs=1e-6)


def test_a_run_may_be_all_warm_up() -> None:
    shares = [rate_share(step, 3, OptimiserRecipe(warm_up=9)) for step in (1, 2, 3)]
    assert shares == pytest.approx([0.1, 0.2, 0.3])


def _no_task(generator: torch.Generator) -> Task:
    raise NotImplementedError


def test_matrices_decay_and_each_level_has_its_rate(tiny_model: Callable[..., Smith]) -> None:
    model = tiny_model()
    choose_trained(model, SentenceLevelRecipe(trained="all", blocks=1))
    objectives = [Objective("o", 1.0, _no_task, Temperature("learned"))]
    trained = trained_parameters(model, objectives)
    recipe = OptimiserRecipe(document_rate=0.5, sentence_rate=0.25, weight_decay=0.1, epsilon=1e-6)
    optimiser = new_optimiser(model, objectives, trained, recipe)
    assert {(g["betas"], g["eps"]) for g in optimiser.param_groups} == {((0.9, 0.999), 1e-6)}
    set_rates(optimiser, 0.5)
    names = {id(parameter): name for name, parameter in trained.items()}
    found = {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in optimiser.param_groups
        for parameter in group["params"]
    }
    assert found.keys() == trained.keys()
    assert found["encoder.document_encoder.projection.weight"] == (0.25, 0.1)
    assert found["encoder.document_encoder.projection.bias"] == (0.25, 0.0)
    assert found["encoder.document_encoder.position_embedding.weight"] == (0.25, 0.0)
    assert found["encoder.block_encoder.projection.weight"] == (0.125, 0.1)
    assert found["encoder.block_encoder.embedding_norm.weight"] == (0.125, 0.0)
    assert found["head.o.logarithm"] == (0.25, 0.0)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_chunks_give_the_gradients_of_one_batch(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays], dropout: float
) -> None:
    """With dropout, those of a batch whose chunks drop the same in the second pass."""
    model, calls = tiny_model(dropout).train(), []
    temperature = Temperature("learned")
    chunks = [collate(part) for part in split(documents, 2 if dropout else 9)]
    model.document_encoder.register_forward_pre_hook(lambda *_: calls.append(1))

    def loss(vectors: Tensor) -> Tensor:
        return contrastive(vectors[:4] @ vectors[4:].T / temperature(), torch.eye(4, 5).bool())

    def gradients(task: Task) -> tuple[Tensor, list[Tensor], Tensor]:
        model.zero_grad()
        temperature.zero_grad()
        torch.manual_seed(1)
        (value,) = task(model).values()
        value.backward()
        parameters = [*model.parameters(), *temperature.parameters()]
        found = [p.grad.clone() for p in parameters if p.grad is not None]
        return value, found, torch.get_rng_state()

    expected_loss, expected, after = gradients(
        lambda model: {"": loss(torch.cat([encode(model, chunk) for chunk in chunks]))}
    )
    assert len(calls) == len(chunks)
    cut = [collate(part) for part in split(documents, 2)]
    found_loss, found, after_chunks = gradients(vectors_task(cut, loss))
    assert len(calls) == len(chunks) + 2 * len(cut)
    assert torch.allclose(found_loss, expected_loss)
    assert len(found) == len(expected) > 20
    for gradient, other in zip(found, expected, strict=True):
        assert torch.allclose(gradient, other, atol=1e-5, rtol=1e-4)
    assert max(gradient.abs().max().item() for gradient in expected) > 1e-2
    if dropout:
        assert torch.equal(after, after_chunks)  # the second pass drew nothing
    calls.clear()
    gradients(vectors_task([collate(documents)], loss))
    assert calls == [1]  # a batch of one chunk is encoded once
