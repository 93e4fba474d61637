"""What a comparison writes that is not tested by running it."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from training.comparison.job import to_toml
from training.comparison.plan import (
    DEFAULT_PLAN,
    Budget,
    creation_table,
    merge,
    pretraining_table,
    read_plan,
    training_table,
)
from training.comparison.runs import choose_rate
from training.errors import TrainingError


def test_a_recipe_is_written_as_it_is_read() -> None:
    plan = read_plan(DEFAULT_PLAN)
    for model in plan.models:
        run = training_table(plan, model, rate=3e-5, seed=1, steps=70)
        for table in (run, creation_table(DEFAULT_PLAN, model)):
            assert tomllib.loads(to_toml(table)) == table
    with_words = {"name": 'a "b" \\ ü', "more": [1, 2.5], "deep": {"er": {"flag": True}}}
    assert tomllib.loads(to_toml(with_words)) == with_words


def test_the_recipe_of_a_run() -> None:
    plan = read_plan(DEFAULT_PLAN)
    (model,) = plan.choose(["match-bert"])
    table = training_table(plan, model, rate=1e-3, seed=1, steps=71)
    assert table["optimiser"] == {
        "decay": "linear", "document_rate": 1e-3, "sentence_rate": 1e-4, "warm_up": 7,
    }  # fmt: skip
    assert (table["steps"], table["seed"], table["validation_interval"]) == (71, 1, 36)
    assert table["patience"] > plan.validations  # no run ends before its budget
    assert plan.runs(model) == 4


def test_tables_are_merged_and_lists_replaced() -> None:
    merged = merge({"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"c": [2]}, "e": 3})
    assert merged == {"a": {"b": 1, "c": [2]}, "d": 2, "e": 3}


@pytest.mark.parametrize(
    ("budget", "pace", "steps"),
    [
        (Budget(60, None), 0.5, 30),
        (Budget(60, None), 16.0, 0),
        (Budget(None, 11), 16.0, 2),
        (Budget(None, 3), 16.0, 0),
    ],
)
def test_the_steps_of_a_run(budget: Budget, pace: float, steps: int) -> None:
    assert budget.steps_of_run(4, pace) == steps


def test_the_best_rate_that_does_not_diverge() -> None:
    (model,) = read_plan(DEFAULT_PLAN).choose(["han"])
    tried: list[dict[str, Any]] = [
        {"rate": 3e-4, "best": 0.5},
        {"rate": 1e-3, "best": 0.5},
        {"rate": 3e-3, "diverged": "step 3: the gradient"},
    ]
    assert choose_rate(tried, model) == 3e-4
    tried[1]["best"] = 0.6
    assert choose_rate(tried, model) == 1e-3
    with pytest.raises(TrainingError, match=r"han: all rates of \[0.0003, 0.001, 0.003\] diverge"):
        choose_rate(tried[2:], model)


def test_models_of_the_plan_can_be_created() -> None:
    from encoder.export.create import Recipe

    plan = read_plan(DEFAULT_PLAN)
    made = [Recipe.model_validate(creation_table(DEFAULT_PLAN, one)) for one in plan.models]
    assert {one.architecture for one in made} == {
        "smith", "colde", "han", "dssm", "arc-i", "ernie-doc",
    }  # fmt: skip
    for one, recipe in zip(plan.models, made, strict=True):
        read = training_table(plan, one, rate=1e-3, seed=0, steps=1)["max_blocks"]
        assert read * recipe.block_length <= 2_048
        assert read <= recipe.max_blocks


def test_the_default_plan_is_in_the_package() -> None:
    assert DEFAULT_PLAN.is_file()
    assert DEFAULT_PLAN.is_relative_to(Path(__file__).parents[3] / "training")


def test_the_plan_of_the_smith_paper_has_its_variants() -> None:
    from encoder.export.create import Recipe

    path = DEFAULT_PLAN.with_name("smith.toml")
    plan = read_plan(path)
    objectives, layers, combined = {}, {}, {}
    for one in plan.models:
        created = Recipe.model_validate(creation_table(path, one))
        run = training_table(plan, one, rate=5e-5, seed=0, steps=10)
        assert [objective["kind"] for objective in run["objective"]] == ["pairs"]
        assert created.architecture == "smith"
        assert created.model["document_layers"] == 3
        assert run["max_blocks"] * created.block_length == (512 if "short" in one.key else 1_536)
        layers[one.key] = created.model["sentence_layers"]
        combined[one.key] = created.model["combine"]
        if one.pretraining is not None:
            table = pretraining_table(plan, one, steps=10)
            (objective,) = table["objective"]
            objectives[one.key] = objective["kind"]
            assert table["optimiser"]["document_rate"] == 5e-5
            assert tomllib.loads(to_toml(table)) == table
        assert {"Wiki65K", "AAN104K"} <= {said.data.split()[0] for said in one.reported}
    assert layers.keys() - objectives.keys() == {"smith-np", "smith-short"}
    assert [key for key, kind in objectives.items() if kind != "wp+sp"] == ["smith-wp"]
    assert {layers[key] for key in objectives} == {2, 4, 6}
    assert {combined[key] for key in objectives} == {
        "normal", "sum_concat", "mean_concat", "attention",
    }  # fmt: skip
