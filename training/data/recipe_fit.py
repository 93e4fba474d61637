"""Which recipes of training fit which encoders."""

from typing import TYPE_CHECKING

from training.errors import TrainingRecipeError
from training.recipe import TrainingRecipe
from training.recipe_tables.objectives import DISTIL_BLOCKS, ObjectiveRecipe

if TYPE_CHECKING:
    from encoder.models.architecture import EncoderConfig


def check_objective(objective: ObjectiveRecipe, config: "EncoderConfig") -> None:
    """Check that a model can learn an objective.

    Args:
        objective: of a recipe.
        config: of the model.

    Raises:
        TrainingRecipeError: it cannot; the message says what it has not.
    """
    if objective.kind in ("sp", "wp+sp") and not config.predicts_blocks:
        raise TrainingRecipeError(
            f"objective {objective.name}: this architecture cannot predict masked sentence blocks"
        )
    if "parts" not in objective.parameters or config.max_sections is None:
        return
    if objective.parameters["parts"] > config.max_sections:
        raise TrainingRecipeError(
            f"objective {objective.name}: parts is above the {config.max_sections} sections that "
            "the model has embeddings for"
        )


def check_recurrence(recipe: TrainingRecipe, *, recurrent: bool) -> None:
    """Check that a recipe fits an encoder whose block vectors depend on the whole document, or not.

    Args:
        recipe: of an encoder.
        recurrent: whether they do.

    Raises:
        TrainingRecipeError: it is for the other kind; the message says what cannot be.
    """
    kinds = {objective.kind for objective in recipe.objectives}
    of_blocks = kinds & {"sp", "wp+sp", DISTIL_BLOCKS}
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
    elif recipe.aligns or of_blocks:
        what = 'similarity = "alignment"' if recipe.aligns else f'objective "{max(of_blocks)}"'
        reason = f"{what} takes vectors of lone blocks, which a recurrent encoder has not"
    elif recipe.terms.dimension:
        reason = "terms.dimension: a recurrent encoder has no term channel"
    if reason is not None:
        raise TrainingRecipeError(f"recipe {recipe.name}: {reason}")
