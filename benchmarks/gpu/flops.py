"""Floating-point operations of a SMITH encoder, from its sizes; a multiply-add counts as two.

Only matrix products are counted, as the share of a GPU's peak usually is: they are all but about a
hundredth of the work. Padding is not counted, so that it lowers the share.
"""

from collections.abc import Sequence
from typing import Any

from encoder.checkpoint import Checkpoint


def document_flops(checkpoint: Checkpoint, lengths: Sequence[int]) -> int:
    """Return the operations that encode one document.

    Args:
        checkpoint: of a SMITH.
        lengths: tokens of each of its sentence blocks, special tokens included.

    Raises:
        ValueError: the checkpoint is of another architecture.
    """
    if checkpoint.architecture != "smith":
        raise ValueError(f"no count of operations for architecture {checkpoint.architecture}")
    model = checkpoint.model
    sentences = sum(_sentence_level(model, length) for length in lengths)
    sentences += 2 * len(lengths) * model["hidden_size"] ** 2  # of a block vector
    return sentences + _document_level(checkpoint, len(lengths))


def _sentence_level(model: Any, length: int) -> int:
    """Return the operations of the Transformer layers on the tokens of one sentence block."""
    pooled = model.get("pooled_layers", 0)
    operations = _layers(model, model["sentence_layers"] - pooled, length)
    if pooled:
        groups = -(-length // model["pooled_tokens"])
        operations += _first_pooled_layer(model, length, groups)
        operations += _layers(model, pooled - 1, groups)
    return operations


def _first_pooled_layer(model: Any, length: int, groups: int) -> int:
    """Return the operations of the layer in which averages of tokens attend to the tokens."""
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    tokens = 3 * hidden * hidden  # query, key, value
    averages = hidden * hidden + 2 * hidden * inner  # output, feed-forward layer
    # Of queries and of states, their products with all keys, and of all values.
    between = 4 * groups * length * hidden
    return int(2 * (length * tokens + groups * averages + between))


def _layers(model: Any, layers: int, length: int) -> int:
    """Return the operations of Transformer layers on one sequence."""
    hidden, inner = model["hidden_size"], model["intermediate_size"]
    projections = 4 * hidden * hidden  # query, key, value, output
    feed_forward = 2 * hidden * inner
    attention = 2 * length * hidden  # of each token: products with all keys, then of all values
    return int(2 * layers * length * (projections + feed_forward + attention))


def _document_level(checkpoint: Checkpoint, blocks: int) -> int:
    model, hidden = checkpoint.model, checkpoint.model["hidden_size"]
    terms = model["term_dimension"] * model["term_features"]
    part = checkpoint.dimension - model["term_dimension"] - model["sketch_dimension"]
    features = hidden if model["combine"] == "normal" else 2 * hidden
    combined = 0
    if model["combine"] == "attention":
        combined = blocks * model["attention_size"] * (hidden + 1)
    layers = _layers(model, model["document_layers"], blocks)
    return int(layers + 2 * (combined + features * part + terms))
