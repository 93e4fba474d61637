"""Which recipes fit an encoder that reads the blocks of a document in order, with a memory."""

from training.errors import TrainingRecipeError
from training.recipe import TrainingRecipe


def check_recurrence(recipe: TrainingRecipe, *, recurrent: bool) -> None:
    """Check that a recipe fits an encoder whose block vectors depend on the whole document, or not.

    Args:
        recipe: of an encoder.
        recurrent: whether they do.

    Raises:
        TrainingRecipeError: it is for the other kind; the message says what cannot be.
    """
    kinds = {objective.kind for objective in recipe.objectives}
    level = recipe.sentence_level
    reason = None
    if not recurrent:
        if "reorder" in kinds:
            reason = 'objective "reorder" pretrains a recurrent encoder, such as an ernie-doc'
    elif level.trained == "frozen":
        reason = (
            'sentence_level.trained = "frozen" takes stored block vectors, which a recurrent '
            'encoder has not: set "all" or "last", with blocks = max_blocks'
        )
    elif level.blocks < recipe.max_blocks:
        reason = (
            f"sentence_level.blocks is {level.blocks}, under the {recipe.max_blocks} of "
            "max_blocks: a recurrent encoder reads every block of a document"
        )
    elif recipe.aligns or kinds & {"sp", "wp+sp"}:
        kind = "wp+sp" if "wp+sp" in kinds else "sp"
        what = 'similarity = "alignment"' if recipe.aligns else f'objective "{kind}"'
        reason = f"{what} takes vectors of lone blocks, which a recurrent encoder has not"
    elif recipe.terms.dimension:
        reason = "terms.dimension: a recurrent encoder has no term channel"
    if reason is not None:
        raise TrainingRecipeError(f"recipe {recipe.name}: {reason}")
