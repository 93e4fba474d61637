"""From a corpus to a checkpoint: recipe, objectives, losses, loop. Needs torch."""
