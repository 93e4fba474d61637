"""Masked words and masked sentence blocks: what is predicted, and what is trained by it."""

import math
from collections.abc import Callable

import pytest
import torch

from encoder.models.smith import Smith
from encoder.training.batch import DocumentArrays, collate
from encoder.training.losses import masked_block_prediction, masked_word_prediction
from encoder.training.masking import Vocabulary
from encoder.training.objectives import masked_blocks_task, masked_words_task
from encoder.training.pretraining import BlockHead, WordHead, block_loss, word_loss

VOCABULARY = Vocabulary(size=50, mask_token=3, special_tokens=(0, 1, 2, 3))


def test_words_are_predicted_in_their_places(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head, texts = WordHead(model.config), collate(documents).texts
    assert texts is not None
    words = torch.full_like(texts.input_ids, -1)
    words[0, 1], words[4, 2] = 17, 29
    states = model.block_encoder.token_states(texts.input_ids, texts.attention_mask)
    expected = masked_word_prediction(
        head(torch.stack([states[0, 1], states[4, 2]])),
        model.block_encoder.token_embedding.weight,
        head.bias,
        torch.tensor([17, 29]),
    )
    assert word_loss(model, head, texts, words).item() == pytest.approx(expected.item())
    nothing = word_loss(model, head, texts, torch.full_like(words, -1))
    nothing.backward()
    assert nothing.item() == 0


def test_blocks_are_predicted_from_what_is_left(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head, batch = BlockHead(model.config), collate(documents)
    masked = torch.zeros_like(batch.block_mask).bool()
    masked[3, 5], masked[7, 2], masked[2, 2] = True, True, True  # all from the cache
    vectors = batch.block_vectors.clone()
    computed = model.block_encoder(batch.texts.input_ids, batch.texts.attention_mask)
    vectors[batch.texts.documents, batch.texts.places] = computed
    hidden = vectors.clone()
    hidden[masked] = head.masked_block
    states = model.document_encoder.block_states(hidden, batch.block_mask)
    expected = masked_block_prediction(states[masked], vectors[masked])
    found = block_loss(model, head, batch, masked)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert block_loss(model, head, batch, torch.zeros_like(masked)).item() == 0


def test_a_masked_block_is_not_seen(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head, batch = BlockHead(model.config), collate([documents[3]])
    vectors = batch.block_vectors
    masked = torch.zeros_like(batch.block_mask).bool()
    masked[0, 5] = True
    other = vectors.clone()
    other[0, 5] = -vectors[0, 5]
    assert torch.equal(head(vectors, masked), head(other, masked))
    assert torch.equal(head(vectors, masked)[~masked], vectors[~masked])
    assert head.masked_block.norm().item() == pytest.approx(1.0)
    assert model.state_dict().keys() == tiny_model().state_dict().keys()  # heads are apart


def test_pretraining_learns_what_can_be_learned(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    batch = collate(documents)
    assert batch.texts is not None
    word_head, block_head = WordHead(model.config), BlockHead(model.config)
    generator = torch.Generator().manual_seed(1)
    tasks = (
        masked_words_task(batch.texts, VOCABULARY, 0.3, word_head, generator),
        masked_blocks_task(batch, 2, block_head, generator),
    )
    parameters = [*model.parameters(), *word_head.parameters(), *block_head.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        both = [task.loss(model) for task in tasks]
        (both[0] + both[1]).backward()  # equation 7
        optimiser.step()
        losses.append([loss.item() for loss in both])
    assert losses[0][0] == pytest.approx(math.log(50), abs=0.5)
    assert losses[-1][0] < losses[0][0] / 2
    assert losses[-1][1] < losses[0][1] / 2
    assert block_head.masked_block.grad is not None
    assert word_head.bias.grad is not None
