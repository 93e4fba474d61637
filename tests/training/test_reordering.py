"""Segment reordering: classes, permuted documents, and the loss against one written by hand."""

import itertools
import math
from collections import Counter

import pytest
import torch

from encoder.checkpoint import Checkpoint
from training import reordering
from training.batch import BlockTexts, as_documents
from training.models.architecture import RecurrentModel
from training.models.smith import Smith
from training.objectives import Vocabulary


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


@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 5])
def test_every_permutation_has_a_class_of_its_own(chunks: int) -> None:
    orders = [
        order for count in range(1, chunks + 1) for order in itertools.permutations(range(count))
    ]
    assert reordering.count_orders(chunks) == len(orders)
    assert [reordering.class_of(order) for order in orders] == list(range(len(orders)))


def test_every_permutation_occurs_and_chunks_stay_whole() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.arange(20)
    found: Counter[int] = Counter()
    for _ in range(3_000):
        permuted, order = reordering.permute_chunks(tokens, 3, generator)
        assert permuted.sort().values.equal(tokens)
        # Chunks are the runs of neighbours; one may follow another by chance of the order.
        runs = 1 + int((permuted.diff() != 1).sum())
        joined = sum(b == a + 1 for a, b in itertools.pairwise(order))
        assert runs == len(order) - joined
        found[reordering.class_of(order)] += 1
    expected = [1 / 3, *[1 / 6] * 2, *[1 / 18] * 6]
    assert [found[c] / 3_000 for c in range(9)] == pytest.approx(expected, abs=0.03)


def test_permuted_documents_are_cut_into_full_segments(checkpoint: Checkpoint) -> None:
    texts = texts_of(checkpoint, (14, 2, 9), (1,), (10, 10))
    permuted, classes = reordering.reorder(texts, 3, checkpoint, torch.Generator().manual_seed(4))
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


def test_the_loss_is_that_of_the_paper(checkpoint: Checkpoint, model: RecurrentModel) -> None:
    texts = texts_of(checkpoint, (14, 5), (3,))
    torch.manual_seed(1)
    head = reordering.OrderHead(model.config, 3)
    words = torch.full_like(texts.input_ids, -1)
    words[0, 3], words[1, 1], words[2, 2] = 2_000, 3_000, 4_000
    classes = torch.tensor([7, 2])
    found = reordering.reorder_losses(model, head, texts, words, classes)
    assert found.keys() == {"order", "words"}
    states = model.segment_states(*as_documents(texts))
    order = 0.0
    for document, (last, label) in enumerate(zip((1, 0), (7, 2), strict=True)):
        cls = states[last][document, 0]
        hidden = torch.tanh(head.pooler.weight @ cls + head.pooler.bias)
        logits = (head.classifier.weight @ hidden + head.classifier.bias).tolist()
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
    nothing = torch.full_like(words, -1)
    (alone,) = reordering.reorder_losses(model, head, texts, nothing, classes).values()
    assert alone.item() == pytest.approx(order, rel=1e-4)


def test_a_task_hides_words_of_the_permuted_document(
    checkpoint: Checkpoint, model: RecurrentModel
) -> None:
    texts = texts_of(checkpoint, *[(14, 14, 5)] * 3)
    vocabulary = Vocabulary(8_000, 4, (0, 1, 2, 3, 4))
    head = reordering.OrderHead(model.config, 2)

    def loss(seed: int, share: float) -> float:
        generator = torch.Generator().manual_seed(seed)
        task = reordering.reorder_task(texts, checkpoint, vocabulary, (2, share), head, generator)
        with torch.no_grad():
            return float(task.loss(model))

    assert loss(1, 0.15) == loss(1, 0.15) != loss(2, 0.15)
    assert loss(1, 0.0) < loss(1, 0.15)
    task = reordering.reorder_task(texts, checkpoint, vocabulary, (2, 0.1), head, torch.Generator())
    with pytest.raises(TypeError, match="recurrent encoder only"):
        task.loss(Smith.__new__(Smith))
