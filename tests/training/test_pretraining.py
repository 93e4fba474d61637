"""Pretraining: what is hidden, how much of it, and the losses against those written by hand."""

import itertools
import math
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from encoder.checkpoint import Checkpoint
from training import pretraining
from training.batch import BlockTexts, DocumentArrays, DocumentBatch, as_documents, collate
from training.export.create import model_config
from training.losses import masked_block_prediction, masked_word_prediction
from training.models.ernie_doc import ErnieDoc
from training.models.smith import Smith
from training.pretraining import PretrainingHead, pretraining_losses, pretraining_task

VOCABULARY = pretraining.Vocabulary(1_000, 101, 102, 0, 103)


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_hidden_in_berts_shares() -> None:
    words = torch.randint(200, 1_000, (400, 500), generator=generator())
    hidden, places = pretraining.mask_words(words, VOCABULARY, 0.15, generator(2))
    chosen = int(places.sum())
    assert chosen / words.numel() == pytest.approx(0.15, abs=0.005)
    as_mask = int((hidden[places] == 103).sum()) / chosen
    as_it_was = int((hidden[places] == words[places]).sum()) / chosen
    assert as_mask == pytest.approx(0.8, abs=0.01)
    assert as_it_was == pytest.approx(0.1, abs=0.01)
    assert bool((hidden[~places] == words[~places]).all())


def test_random_words_come_from_the_whole_vocabulary() -> None:
    words = torch.full((400, 500), 500)
    hidden, places = pretraining.mask_words(words, VOCABULARY, 0.15, generator())
    random = hidden[places & (hidden != 103) & (hidden != 500)]
    assert len(random.unique()) > 900


def test_special_tokens_are_never_masked() -> None:
    ids = torch.tensor([[101, 103, 102, 0]]).repeat(500, 1)
    hidden, places = pretraining.mask_words(ids, VOCABULARY, 0.9, generator())
    assert not places.any()
    assert torch.equal(hidden, ids)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(1, 6), st.integers(0, 99))
def test_m_blocks_are_masked_and_one_is_left(blocks: list[int], count: int, seed: int) -> None:
    mask = (torch.arange(12) < torch.tensor(blocks)[:, None]).float()
    masked = pretraining.mask_blocks(mask, count, generator(seed))
    assert not (masked & (mask == 0)).any()  # never padding
    assert masked.sum(1).tolist() == [min(count, number - 1) for number in blocks]


def test_every_block_is_masked_equally_often() -> None:
    masked = pretraining.mask_blocks(torch.ones(20_000, 5), 2, generator())
    assert masked.float().mean(0).tolist() == pytest.approx([0.4] * 5, abs=0.02)


SMALL = pretraining.Vocabulary(50, 1, 2, 0, 3)


def test_words_are_predicted_in_their_places(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, batch = tiny_model(), collate(documents)
    head, texts = PretrainingHead(model.config, SMALL, share=0.5), batch.texts
    assert texts is not None
    words = torch.full_like(texts.input_ids, -1)
    words[0, 1], words[4, 2] = 17, 29
    states = model.block_encoder.token_states(texts.input_ids, texts.attention_mask)
    expected = masked_word_prediction(
        head.words(torch.stack([states[0, 1], states[4, 2]])),
        model.block_encoder.token_embedding.weight,
        head.words.bias,
        torch.tensor([17, 29]),
    )
    found = pretraining_losses(model, head, batch, {"words": words})["words"]
    assert found.item() == pytest.approx(expected.item())
    nothing = pretraining_losses(model, head, batch, {"words": torch.full_like(words, -1)})["words"]
    nothing.backward()
    assert nothing.item() == 0


def test_blocks_are_predicted_from_what_is_left(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, batch = tiny_model(), collate(documents)
    head = PretrainingHead(model.config, SMALL, masked_blocks=2)
    assert head.masked_block.norm().item() == pytest.approx(1.0)
    masked = torch.zeros_like(batch.block_mask).bool()
    masked[3, 5], masked[7, 2], masked[2, 2] = True, True, True  # all from the cache
    vectors = batch.block_vectors.clone()
    computed = model.block_encoder(batch.texts.input_ids, batch.texts.attention_mask)
    vectors[batch.texts.documents, batch.texts.places] = computed
    hidden = vectors.clone()
    hidden[masked] = head.masked_block
    states = model.document_encoder.block_states(hidden, batch.block_mask)
    expected = masked_block_prediction(states[masked], vectors[masked])

    def loss(blocks: torch.Tensor) -> float:
        return pretraining_losses(model, head, batch, {"blocks": blocks})["blocks"].item()

    assert loss(masked) == pytest.approx(expected.item(), rel=1e-5)
    assert loss(torch.zeros_like(masked)) == 0


def test_words_and_blocks_of_a_batch_are_predicted_together(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model, batch = tiny_model(), collate(documents)
    head, texts = PretrainingHead(model.config, SMALL, share=0.5, masked_blocks=2), batch.texts
    assert texts is not None
    hidden = {"words": torch.full_like(texts.input_ids, -1)}
    hidden["words"][0, 1], hidden["words"][4, 2] = 17, 29
    masked = hidden["blocks"] = torch.zeros_like(batch.block_mask).bool()
    masked[texts.documents[0], texts.places[0]] = masked[3, 5] = masked[7, 2] = True
    together = pretraining_losses(model, head, batch, hidden)
    for name, found in together.items():
        (alone,) = pretraining_losses(model, head, batch, {name: hidden[name]}).values()
        assert found.item() == pytest.approx(alone.item(), rel=1e-5)
    loss_of(model, batch, head, 1).backward()
    level = model.document_encoder
    read = [model.block_encoder, level.layers, level.position_embedding, head]
    for parameter in [parameter for part in read for parameter in part.parameters()]:
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0


def loss_of(
    model: Smith | ErnieDoc, batch: DocumentBatch, head: PretrainingHead, seed: int
) -> torch.Tensor:
    losses = pretraining_task(batch, head, generator(seed))(model)
    return torch.stack(list(losses.values())).sum()


def test_pretraining_learns_what_can_be_learned(
    tiny_model: Callable[..., Smith], documents: list[DocumentArrays]
) -> None:
    model = tiny_model()
    head = PretrainingHead(model.config, SMALL, share=0.3, masked_blocks=2)
    task = pretraining_task(collate(documents), head, generator())
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=3e-3)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        both = task(model)
        (both["words"] + both["blocks"]).backward()  # equation 7
        optimiser.step()
        losses.append((both["words"].item(), both["blocks"].item()))
    assert losses[0][0] == pytest.approx(math.log(50), abs=0.5)
    assert losses[-1][0] < losses[0][0] / 2
    assert losses[-1][1] < losses[0][1] / 2


def order_head(start: Checkpoint, chunks: int, share: float = 0.15) -> PretrainingHead:
    torch.manual_seed(1)
    vocabulary = pretraining.read_vocabulary(start)
    return PretrainingHead(model_config(start), vocabulary, share=share, chunks=chunks)


def texts_of(checkpoint: Checkpoint, *documents: tuple[int, ...]) -> BlockTexts:
    """Documents of blocks of so many tokens, numbered through from 1,000."""
    owners, places, rows = [], [], []
    token = 1_000
    for owner, lengths in enumerate(documents):
        for place, length in enumerate(lengths):
            owners.append(owner)
            places.append(place)
            rows.append([*range(token, token + length)])
            token += length
    ids = torch.full((len(rows), 16), checkpoint.padding_token)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        tokens = [checkpoint.start_token, *row, checkpoint.end_token]
        ids[number, : len(tokens)] = torch.tensor(tokens)
        mask[number, : len(tokens)] = 1
    return BlockTexts(torch.tensor(owners), torch.tensor(places), ids, mask)


def test_every_permutation_occurs_and_chunks_stay_whole() -> None:
    random = generator(0)
    tokens, orders = torch.arange(20), pretraining.orders_of(3)
    assert len(set(orders)) == len(orders) == 9
    found: Counter[int] = Counter()
    for _ in range(3_000):
        permuted, order = pretraining.permute_chunks(tokens, 3, random)
        assert permuted.sort().values.equal(tokens)
        # Chunks are the runs of neighbours; one may follow another by chance of the order.
        runs = 1 + int((permuted.diff() != 1).sum())
        joined = sum(b == a + 1 for a, b in itertools.pairwise(order))
        assert runs == len(order) - joined
        found[orders.index(order)] += 1
    expected = [1 / 3, *[1 / 6] * 2, *[1 / 18] * 6]
    assert [found[c] / 3_000 for c in range(9)] == pytest.approx(expected, abs=0.03)


def test_permuted_documents_are_cut_into_full_segments(checkpoint: Checkpoint) -> None:
    texts = texts_of(checkpoint, (14, 2, 9), (1,), (10, 10))
    permuted, classes = pretraining.reorder(texts, order_head(checkpoint, 3), generator(4))
    assert permuted.documents.tolist() == [0, 0, 1, 2, 2]
    assert permuted.places.tolist() == [0, 1, 0, 0, 1]
    assert permuted.attention_mask.sum(1).tolist() == [16, 13, 3, 16, 8]
    assert classes[1] == 0
    for document, tokens in enumerate((25, 1, 20)):
        own = permuted.documents == document
        ids = permuted.input_ids[own][permuted.attention_mask[own] == 1]
        words = ids[ids >= 1_000]
        assert len(words) == len(words.unique()) == tokens
        assert (ids == checkpoint.start_token).sum() == own.sum()


def batch_of(texts: BlockTexts) -> DocumentBatch:
    return DocumentBatch(torch.empty(0), torch.empty(0), texts=texts)


def test_the_loss_of_the_order_is_that_of_the_paper(
    checkpoint: Checkpoint, model: ErnieDoc
) -> None:
    texts = texts_of(checkpoint, (14, 5), (3,))
    head = order_head(checkpoint, 3)
    words = torch.full_like(texts.input_ids, -1)
    words[0, 3], words[1, 1], words[2, 2] = 2_000, 3_000, 4_000
    hidden = {"words": words, "order": torch.tensor([7, 2])}
    found = pretraining_losses(model, head, batch_of(texts), hidden)
    assert found.keys() == {"order", "words"}
    states = model.segment_states(*as_documents(texts))
    order = 0.0
    for document, (last, label) in enumerate(zip((1, 0), (7, 2), strict=True)):
        cls = states[last][document, 0]
        pooled = torch.tanh(head.order[0].weight @ cls + head.order[0].bias)
        logits = (head.order[2].weight @ pooled + head.order[2].bias).tolist()
        total = sum(math.exp(logit) for logit in logits)
        order -= math.log(math.exp(logits[label]) / total) / 2
    word = 0.0
    table = model.block_encoder.token_embedding.weight
    for document, place, token, label in ((0, 0, 3, 2_000), (0, 1, 1, 3_000), (1, 0, 2, 4_000)):
        logits = (table @ head.words(states[place][document, token]) + head.words.bias).tolist()
        highest = max(logits)
        total = sum(math.exp(logit - highest) for logit in logits)
        word -= (logits[label] - highest - math.log(total)) / 3
    assert found["order"].item() == pytest.approx(order, rel=1e-4)
    assert found["words"].item() == pytest.approx(word, rel=1e-4)


def test_a_task_hides_words_of_the_permuted_document(
    checkpoint: Checkpoint, model: ErnieDoc
) -> None:
    batch = batch_of(texts_of(checkpoint, *[(14, 14, 5)] * 3))

    @torch.no_grad()
    def loss(seed: int, share: float) -> float:
        return loss_of(model, batch, order_head(checkpoint, 2, share), seed).item()

    assert loss(1, 0.15) == loss(1, 0.15) != loss(2, 0.15)
    assert loss(1, 0.0) < loss(1, 0.15)
