"""The one training loop.

A step is a function of the weights, the state of the optimiser and its own number: sampling and
dropout use generators seeded by recipe and step. A killed run therefore continues from its last
checkpoint as if it had not been interrupted, bit for bit on a CPU.
"""

import ctypes
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

import torch
from torch import Tensor, nn

from training.errors import NotFiniteError, TrainingRecipeError
from training.models.architecture import EncoderModel, TrainableModel
from training.objectives import M, Objective, Temperature, step_generator, step_seed
from training.progress import TrainingProgress
from training.recipe import OptimiserRecipe, SentenceLevelRecipe, TrainingRecipe
from training.run_files import (
    CURVE,
    LOSS,
    STATE,
    VALIDATION,
    RunState,
    append_to_curve,
    load_best,
    load_state,
    save_best,
    save_state,
    truncate_curve,
)

_TERM_CHANNEL = "encoder.document_encoder.term"
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h of glibc


def choose_trained(model: TrainableModel, level: SentenceLevelRecipe) -> None:
    """Enable gradients of the head, and of the token encoder as the recipe says."""
    reader = model.token_encoder
    layers = reader.layers
    if level.layers > len(layers):
        raise TrainingRecipeError(
            f"sentence_level.layers is {level.layers}, and the sentence level has {len(layers)}"
        )
    model.requires_grad_(True)
    reader.requires_grad_(level.trained == "all")
    if level.trained == "last":
        for layer in reader.last_layers(level.layers):
            layer.requires_grad_(True)


def trained_parameters(
    model: TrainableModel, objectives: Sequence[Objective[Any]]
) -> dict[str, nn.Parameter]:
    """Return the trained parameters: `encoder.…` of the model, `head.<objective>.…` of heads."""
    modules = {"encoder": model} | {f"head.{o.name}": o.head for o in objectives}
    return {
        f"{owner}.{name}": parameter
        for owner, module in modules.items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def new_optimiser(
    model: TrainableModel,
    objectives: Sequence[Objective[Any]],
    trained: Mapping[str, nn.Parameter],
    recipe: OptimiserRecipe,
) -> torch.optim.AdamW:
    """Make AdamW with a rate for each level; each group keeps its own as `full_rate`."""
    modules = [m for root in (model, *(o.head for o in objectives)) for m in root.modules()]
    decaying = {id(module.weight) for module in modules if isinstance(module, nn.Linear)}
    sentence_level = {id(parameter) for parameter in model.token_encoder.parameters()}
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        rate = recipe.document_rate
        if id(parameter) in sentence_level:
            rate = recipe.sentence_rate
        elif name.startswith(_TERM_CHANNEL):
            rate = recipe.term_rate
        decay = recipe.weight_decay if id(parameter) in decaying else 0.0
        groups.setdefault((rate, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "full_rate": rate, "weight_decay": decay}
            for (rate, decay), parameters in groups.items()
        ],
        eps=recipe.epsilon,
        fused=True,
    )


def rate_share(step: int, steps: int, recipe: OptimiserRecipe) -> float:
    """Return the share of the full rates in a step, counted from 1 to `steps`."""
    if step <= recipe.warm_up:
        return step / (recipe.warm_up + 1)
    left = (steps - step + 1) / max(1, steps - recipe.warm_up)
    return left if recipe.decay == "linear" else (1 - math.cos(math.pi * left)) / 2


def set_rates(optimiser: torch.optim.Optimizer, share: float) -> None:
    """Set the rate of each group to a share of its full rate."""
    for group in optimiser.param_groups:
        group["lr"] = share * group["full_rate"]


@dataclass(frozen=True, slots=True)
class Validated:
    """What a validation found.

    Attributes:
        figure: by which the best step is chosen.
        parts: more figures by name, for the curve.
    """

    figure: float
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan(Generic[M]):
    """What a run does.

    Attributes:
        recipe: how.
        objectives: what is learned, made of the recipe's objectives and the data. Their heads
            lie on the device of the model, and were made after `torch.manual_seed(recipe.seed)`.
        validate: validates the model, ready to encode and without gradients.
        lower_is_better: whether the figure of validation is a loss.
        data_fingerprint: names the data and the checkpoint that the model was loaded from.
        stop: checked before each step; if true, it is the last one of this call: the run is
            validated and saved, and continues when it is trained again.
    """

    recipe: TrainingRecipe
    objectives: Sequence[Objective[M]]
    validate: Callable[[M], Validated]
    data_fingerprint: str
    lower_is_better: bool = False
    stop: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class _Run(Generic[M]):
    model: M
    plan: TrainingPlan[M]
    directory: Path
    trained: Mapping[str, nn.Parameter]
    optimiser: torch.optim.Optimizer
    progress: TrainingProgress


def train(model: M, plan: TrainingPlan[M], directory: Path, progress: TrainingProgress) -> RunState:
    """Train a model, or resume the run that a directory holds.

    The model is also validated before the first step: if training does not improve it, it stays
    as it was. Sets the global generators of torch.

    Args:
        model: on the device to train on; has the best weights afterwards.
        directory: of the state, best weights and curve of the run; created if missing.
    """
    recipe = plan.recipe
    if isinstance(model, EncoderModel) and recipe.max_blocks > model.config.max_blocks:
        raise TrainingRecipeError(
            f"max_blocks is {recipe.max_blocks}, and the model reads {model.config.max_blocks}"
        )
    choose_trained(model, recipe.sentence_level)
    keep_freed_memory()
    trained = trained_parameters(model, plan.objectives)
    optimiser = new_optimiser(model, plan.objectives, trained, recipe.optimiser)
    directory.mkdir(parents=True, exist_ok=True)
    run = _Run(model, plan, directory, trained, optimiser, progress)
    state = _begin(run)
    last = False
    while not last and state.step < recipe.steps and state.waited < recipe.patience:
        last = state.step + 1 == recipe.steps or plan.stop()
        state = _advance(run, state, last=last)
    load_best(directory, trained)
    model.eval()
    return state


def keep_freed_memory() -> None:
    """Make glibc keep what a step frees for the next step, for the rest of the process.

    By default tensors over 32 MiB, such as attention weights, go back to the operating system, and
    are zeroed again page by page: 0.42 of the processor time of a reranker's training on a CPU.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def _begin(run: _Run[M]) -> RunState:
    recipe, curve = run.plan.recipe, run.directory / CURVE
    if (run.directory / STATE).exists():
        state = load_state(run.directory, run.trained, run.optimiser, _fingerprint(run.plan))
        truncate_curve(curve, state.step)
        run.progress.started(state.step, recipe.steps)
        return state
    truncate_curve(curve, -1)
    run.progress.started(0, recipe.steps)
    worst = math.inf if run.plan.lower_is_better else -math.inf
    return _validate(run, RunState(0, 0, worst, 0))


def _advance(run: _Run[M], state: RunState, *, last: bool) -> RunState:
    """Take one step, validate and save where it is time."""
    recipe, step = run.plan.recipe, state.step + 1
    figures = _take_step(run, step)
    append_to_curve(run.directory / CURVE, step, figures)
    run.progress.stepped(step, figures)
    state = replace(state, step=step)
    if last or step % recipe.validation_interval == 0:
        state = _validate(run, state)
    last = last or state.waited >= recipe.patience
    if last or step % recipe.checkpoint_interval == 0:
        save_state(run.directory, run.trained, run.optimiser, state, _fingerprint(run.plan))
    return state


def _take_step(run: _Run[M], step: int) -> dict[str, float]:
    recipe, objectives = run.plan.recipe, run.plan.objectives
    torch.manual_seed(step_seed(recipe.seed, step))  # for dropout
    run.model.train()
    run.model.token_encoder.train(recipe.sentence_level.trained != "frozen")
    share = rate_share(step, recipe.steps, recipe.optimiser)
    set_rates(run.optimiser, share)
    run.optimiser.zero_grad()
    losses: dict[str, float] = {}
    for stream, objective in enumerate(objectives, start=1):
        losses |= _add_gradients(run, objective, step, stream)
    norm = nn.utils.clip_grad_norm_(run.trained.values(), recipe.optimiser.gradient_clip)
    norm_value = _finite(step, "the gradient", norm)
    run.optimiser.step()
    figures = {LOSS: sum(o.weight * losses[o.name] for o in objectives)}
    figures |= {f"{LOSS}.{name}": value for name, value in losses.items()}
    figures |= {"gradient_norm": norm_value, "rate_share": share}
    for objective in objectives:
        if isinstance(objective.head, Temperature):
            figures[f"temperature.{objective.name}"] = objective.head().item()
    return figures


def _add_gradients(
    run: _Run[M], objective: Objective[M], step: int, stream: int
) -> dict[str, float]:
    """Add the gradients of an objective; return its loss and its parts."""
    # Separate streams: adding or removing an objective does not change the samples of others.
    task = objective.sample(step_generator(run.plan.recipe.seed, step, stream, 0))
    with _autocast(run):
        parts = task(run.model)
    loss = torch.stack(list(parts.values())).sum()
    found = {objective.name: _finite(step, f"the loss of objective {objective.name}", loss)}
    torch.autograd.backward(loss * objective.weight)
    if len(parts) > 1:
        found |= {f"{objective.name}.{name}": part.item() for name, part in parts.items()}
    return found


def _autocast(run: _Run[M]) -> torch.autocast:
    enabled = run.plan.recipe.precision == "bf16"
    return torch.autocast(run.model.device.type, torch.bfloat16, enabled=enabled)


def _validate(run: _Run[M], state: RunState) -> RunState:
    """Validate, and keep the weights if no validation was better."""
    run.model.eval()
    with torch.no_grad():
        validated = run.plan.validate(run.model)
    figure = validated.figure
    if not math.isfinite(figure):
        raise NotFiniteError(state.step, "the figure of validation", figure)
    parts = {f"{VALIDATION}.{name}": value for name, value in validated.parts.items()}
    append_to_curve(run.directory / CURVE, state.step, {VALIDATION: figure, **parts})
    lower = run.plan.lower_is_better
    best = figure < state.best_figure if lower else figure > state.best_figure
    run.progress.validated(state.step, figure, best=best)
    if not best:
        return replace(state, waited=state.waited + 1)
    state = RunState(state.step, state.step, figure, 0)
    save_best(run.directory, run.trained, state)
    return state


def _finite(step: int, what: str, value: Tensor) -> float:
    number = value.item()
    if not math.isfinite(number):
        raise NotFiniteError(step, what, number)
    return number


def _fingerprint(plan: TrainingPlan[Any]) -> dict[str, str]:
    recipe = hashlib.sha256(plan.recipe.model_dump_json().encode()).hexdigest()
    return {"recipe": recipe, "data": plan.data_fingerprint}
