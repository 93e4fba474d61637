"""Gradient caching: the loss of a batch that is too large for one graph (Gao et al., 2021)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from encoder.training.batch import DocumentBatch


def cached_backward(
    encode: Callable[[DocumentBatch], Tensor],
    chunks: Sequence[DocumentBatch],
    loss: Callable[[Tensor], Tensor],
    scale: float = 1.0,
) -> Tensor:
    """Add the gradients of `scale * loss` over all chunks, holding the graph of one at a time.

    Every chunk is encoded twice: without a graph, for the loss over the whole batch and its
    gradient by each document vector; then with its graph, through which that gradient goes on.
    The second time sees the same dropout as the first, so the gradients are exact. One chunk
    alone is encoded once.

    Args:
        encode: documents -> [D, dimension].
        chunks: of the batch; at least one.
        loss: [all D, dimension] -> [] loss.
        scale: of the gradients.

    Returns:
        [] the loss, not scaled, without its graph.
    """
    if len(chunks) == 1:
        value = loss(encode(chunks[0]))
        torch.autograd.backward(value * scale)
        return value.detach()
    states, encoded = [], []
    with torch.no_grad():
        for chunk in chunks:
            states.append(_random_state(chunk.block_mask.device))
            encoded.append(encode(chunk))
    vectors = torch.cat(encoded).requires_grad_()
    value = loss(vectors)
    torch.autograd.backward(value * scale)
    if vectors.grad is None:
        raise ValueError("the loss does not depend on the document vectors")
    gradients = torch.split(vectors.grad, [len(part) for part in encoded])
    for chunk, state, gradient in zip(chunks, states, gradients, strict=True):
        torch.autograd.backward(_encode_again(encode, chunk, state), gradient)
    return value.detach()


def _random_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _encode_again(
    encode: Callable[[DocumentBatch], Tensor], chunk: DocumentBatch, state: Tensor
) -> Tensor:
    """Encode with the random numbers of the first time, and leave the generator as it was."""
    device = chunk.block_mask.device
    if device.type == "cuda":
        with torch.random.fork_rng([device]):
            torch.cuda.set_rng_state(state, device)
            return encode(chunk)
    with torch.random.fork_rng([]):
        torch.set_rng_state(state)
        return encode(chunk)
