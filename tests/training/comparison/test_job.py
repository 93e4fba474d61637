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


def test_the_plan_of_the_smith_paper_has_the_models_of_its_tables() -> None:
    from encoder.export.create import Recipe

    path = DEFAULT_PLAN.with_name("smith.toml")
    plan = read_plan(path)
    objectives, layers, combined, tokens = {}, {}, {}, {}
    for one in plan.models:
        created = Recipe.model_validate(creation_table(path, one))
        run = training_table(plan, one, rate=5e-5, seed=0, steps=10)
        assert [objective["kind"] for objective in run["objective"]] == ["pairs"]
        tokens[one.key] = run["max_blocks"] * created.block_length
        assert {"Wiki65K", "AAN104K"} <= {said.data.split()[0] for said in one.reported}
        if one.key in ("match-bert", "han", "smash"):
            continue
        assert (created.architecture, created.model["document_layers"]) == ("smith", 3)
        layers[one.key] = created.model["sentence_layers"]
        combined[one.key] = created.model["combine"]
        if one.pretraining is not None:
            table = pretraining_table(plan, one, steps=10)
            (objective,) = table["objective"]
            objectives[one.key] = objective["kind"]
            assert table["optimiser"]["document_rate"] == 5e-5
            assert tomllib.loads(to_toml(table)) == table
    # The lengths of table 5.
    others = {"match-bert": 256, "smith-short": 512, "han": 2_048, "smash": 2_048}
    assert tokens == dict.fromkeys(layers, 1_536) | others
    assert layers.keys() - objectives.keys() == {"smith-np", "smith-short"}
    assert [key for key, kind in objectives.items() if kind != "wp+sp"] == ["smith-wp"]
    assert {layers[key] for key in objectives} == {2, 4, 6}
    assert {combined[key] for key in objectives} == {
        "normal", "sum_concat", "mean_concat", "attention",
    }  # fmt: skip


def test_the_plan_of_lengths_has_the_setting_of_its_section() -> None:
    """SMITH, section 5.4: layers 4 and 3, blocks of 32 tokens, 2 to 64 of them."""
    path = DEFAULT_PLAN.with_name("smith-lengths.toml")
    plan = read_plan(path)
    read = []
    for one in plan.models:
        created = creation_table(path, one)
        model = created["model"]
        assert (model["sentence_layers"], model["document_layers"]) == (4, 3)
        tables = (
            training_table(plan, one, rate=5e-5, seed=0, steps=10),
            pretraining_table(plan, one, steps=10),
        )
        assert [table["objective"][0]["kind"] for table in tables] == ["pairs", "wp+sp"]
        (blocks,) = {created["max_blocks"], *(table["max_blocks"] for table in tables)}
        read.append(blocks * created["block_length"])
    assert read == [2_048, 1_024, 512, 256, 128, 64]


def test_the_plan_of_colde_has_the_rows_of_its_table() -> None:
    """CoLDE, table 2, without Siamese Longformer."""
    path = DEFAULT_PLAN.with_name("colde.toml")
    plan = read_plan(path)
    accuracies = {one.name: [said.accuracy for said in one.reported] for one in plan.models}
    assert accuracies == {
        "CoLDE": [0.742, 0.801, 0.833],
        "CoLDE-Aug": [0.616, 0.606, 0.757],
        "CoLDE-LSTM": [0.706, 0.786, 0.792],
        "CoLDE-CL": [0.595, 0.5, 0.586],
        "DSSM": [0.686, 0.788, 0.521],
        "ARC-I": [0.655, 0.764, 0.708],
        "HAN": [0.664, 0.748, 0.538],
        "S-BERT": [0.566, 0.499, 0.52],
        "SMITH": [0.691, 0.714, 0.509],
    }
    settings = {}
    for one in plan.models[:4]:
        created = creation_table(path, one)
        table = training_table(plan, one, rate=5e-5, seed=0, steps=10)
        (objective,) = table["objective"]
        assert (created["block_length"], created["model"]["lstm_size"]) == (512, 512)
        assert table["optimiser"]["weight_decay"] == 0.01
        if objective["kind"] == "supcon":  # in sections: 50 documents a batch
            assert table["documents"] == 50 * objective["parts"]
            assert objective["temperature"] == 0.5
        settings[one.name] = (
            created["model"]["aggregate"],
            created["model"].get("positions", True),
            objective["kind"],
            objective.get("parts"),
        )
    assert settings == {
        "CoLDE": ("lstm", True, "supcon", 2),
        "CoLDE-Aug": ("lstm", False, "supcon", 1),
        "CoLDE-LSTM": ("embedded_mean", True, "supcon", 2),
        "CoLDE-CL": ("lstm", False, "pairs", None),
    }
