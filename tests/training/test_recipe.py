"""Recipes: what a file says, and what is wrong with one."""

from pathlib import Path

import pytest

from training.errors import TrainingRecipeError
from training.recipe import (
    RECIPES,
    TrainingRecipe,
    pretrains,
    reads_tokens_only,
)

SMALL = """
name = "small"
steps = 10
documents = 4
[[objective]]
kind = "supcon"
"""


def read(path: Path, text: str) -> TrainingRecipe:
    (path / "recipe.toml").write_text(text)
    return TrainingRecipe.read(path / "recipe.toml")


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_read(path: Path) -> None:
    assert TrainingRecipe.read(path).name == path.stem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nsteps = 1\ndocuments = 2', r"it has no \[\[objective\]\]"),
        (SMALL.replace("steps = 10", ""), "steps: Field required"),
        (SMALL + "[optimiser]\nwarmup = 3", "optimiser.warmup: unknown field"),
        (SMALL + '[sentence_level]\ntrained = "last"', "sentence_level: layers goes with"),
        (SMALL + "[sentence_level]\nlayers = 2", "sentence_level: layers goes with"),
        (SMALL + '[sentence_level]\ntrained = "all"', "sentence_level.blocks goes with"),
        (SMALL + "[sentence_level]\nblocks = 2", "sentence_level.blocks goes with"),
        (
            SMALL + "[terms]\ndimension = 8\nspan = 7",
            "terms: dimension is 8, and must not be above span, which is 7",
        ),
        (SMALL + "[terms]\ndimension = 8\ndocuments = 512", "terms: documents must be above"),
        (
            SMALL.replace('kind = "supcon"', ""),
            "objective.1: Unable to extract tag",
        ),
        (
            SMALL.replace("supcon", "magic"),
            "objective.1: Input tag 'magic' found",
        ),
        (SMALL + "weight = 0", "every objective has weight 0"),
        (SMALL + '[[objective]]\nkind = "supcon"', "two objectives are of one kind"),
        (SMALL.replace("supcon", "wp"), 'objective "wp" trains the sentence level, which is'),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TrainingRecipeError, match=message) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "recipe.toml") in str(caught.value)


def test_sections_take_another_section(tmp_path: Path) -> None:
    (path := tmp_path / "r.toml").write_text(SMALL.replace("supcon", "sections") + "parts = 1")
    with pytest.raises(
        TrainingRecipeError, match=r"sections\.parts: must be greater than or equal to 2"
    ):
        TrainingRecipe.read(path)
    path.write_text(SMALL + 'parts = 1\ngroups = "pairs"')
    assert TrainingRecipe.read(path).objectives[0].parameters["groups"] == "pairs"


@pytest.mark.parametrize(
    ("objectives", "blocks", "alone", "tokens"),
    [
        *((("wp",), 2, True, True), (("wp+sp",), 64, True, True), (("wp+sp",), 63, True, False)),
        *((("wp", "sp"), 2, True, False), (("wp", "links"), 64, False, True)),
        (("pairs",), 0, False, False),
    ],
)
def test_what_a_recipe_reads(
    tmp_path: Path, objectives: tuple[str, ...], blocks: int, alone: bool, tokens: bool
) -> None:
    level = f'[sentence_level]\ntrained = "all"\nblocks = {blocks}\n' if blocks else ""
    tables = "".join(f'[[objective]]\nkind = "{kind}"\n' for kind in objectives)
    recipe = read(tmp_path, f'name = "small"\nsteps = 1\ndocuments = 4\n{level}{tables}')
    assert (pretrains(recipe), reads_tokens_only(recipe)) == (alone, tokens)
