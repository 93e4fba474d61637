"""What a recipe says of pretraining, and of what has to be made before it. No torch."""

from training.recipe import TrainingRecipe
from training.recipe_tables.objectives import DISTIL_BLOCKS

# Kinds that learn from texts alone, those that distil by way of the teacher's vectors of them.
SELF_SUPERVISED = frozenset({"wp", "sp", "wp+sp", "reorder", DISTIL_BLOCKS})


def pretrains(recipe: TrainingRecipe) -> bool:
    """Say whether a recipe learns nothing but what texts say of themselves."""
    return all(one.kind in SELF_SUPERVISED for one in recipe.objectives)


def reads_tokens_only(recipe: TrainingRecipe) -> bool:
    """Say whether a step reads all that it needs as tokens, so that no block vector is stored."""
    if recipe.distils:
        return False  # block vectors are what it learns
    words_alone = {one.kind for one in recipe.objectives} == {"wp"}
    return words_alone or recipe.max_blocks <= recipe.sentence_level.blocks
