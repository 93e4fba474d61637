"""The same corpus on FAISS and the local words, and in Milvus: the same answers."""

from collections.abc import Iterator
from contextlib import ExitStack, closing

import numpy as np
import pytest

from encoder.blocks import Receipt
from index.directory.data_directory import DataDirectory, open_data_directory
from index.document import Document
from index.search.calibrator import ScoreCalibrator
from index.search.fusion import LinearFusion
from index.search.records import EncodedQuery, Hit, Mode, SearchOptions
from index.search.search import search
from index.store.filters import Bound, Filter, Range
from index.store.records import EncodedDocument
from index.vectors.milvus.connection import MilvusAddress
from index.vectors.milvus.engine import drop_collections
from tests.tools.index_fixtures import unit_vectors
from tests.tools.milvus import with_words
from tests.tools.tiers import Tier

DIMENSION = 64
RULE = LinearFusion(0.5, 0.25, 0.4, expected_slope=0.5, expected_intercept=0.2)
WORDS = ("heron", "egret", "marsh", "court", "appeal", "motor", "bolt", "violin", "basalt", "queen")
SHARE = 0.99  # of the queries that must have the same ten documents first, in the same order

Pair = tuple[DataDirectory, DataDirectory]


def text_of(number: int) -> str:
    chance = np.random.default_rng(number)
    return " ".join(chance.choice(WORDS, 6)) + f" word{number}"


@pytest.fixture(scope="module")
def size(tier: Tier) -> tuple[int, int]:
    """How many documents and queries."""
    return (6_000, 200) if tier.sweep else (600, 40)


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, milvus_address: MilvusAddress, size: tuple[int, int]
) -> Iterator[Pair]:
    """One corpus in two data directories: FAISS in fp32, and Milvus."""
    count, _ = size
    folder = tmp_path_factory.mktemp("both")
    vectors = unit_vectors(count, seed=1, dimension=DIMENSION)
    entries = [
        EncodedDocument(
            Document(f"d{row}", text_of(row), metadata={"year": 1990 + row % 30}),
            vectors[row],
            Receipt(1, 1, 1, 0, 1),
        )
        for row in range(count)
    ]
    with ExitStack() as open_ones:
        made = []
        for name, options in (
            ("faiss", {"index_precision": "fp32"}),
            ("milvus", {"milvus": with_words(milvus_address)}),
        ):
            about = {"fingerprint": "a" * 64, "dimension": DIMENSION, "find_families": False}
            opened = open_data_directory(folder / name, **about, **options)
            open_ones.enter_context(closing(opened))
            opened.store.put(entries)
            opened.store.delete([f"d{row}" for row in range(0, count, 50)])
            opened.index.catch_up()
            opened.store.lexical.publish()  # a Milvus Lite searches slowly what is not on the disk
            made.append(opened)
        yield made[0], made[1]
    drop_collections(milvus_address, folder / "milvus")


def first(
    data: DataDirectory, query: EncodedQuery, mode: Mode, where: Filter | None
) -> tuple[Hit, ...]:
    among = None if where is None else data.store.select(where)
    nothing = ScoreCalibrator(None, None, None)
    options = SearchOptions(top_k=10, mode=mode)
    return search(data, query, options, fusion=RULE, calibrator=nothing, among=among).hits


@pytest.mark.parametrize(
    "where", [None, Range("/year", Bound(1990, True), Bound(1993, False))], ids=["all", "filtered"]
)
@pytest.mark.parametrize(
    "mode", [pytest.param("semantic", marks=pytest.mark.slow), "hybrid", "lexical"]
)
def test_the_same_ten_come_first(
    both: Pair, size: tuple[int, int], mode: Mode, where: Filter | None
) -> None:
    _, queries = size
    vectors = unit_vectors(queries, seed=2, dimension=DIMENSION)
    same = 0
    for number in range(queries):
        query = EncodedQuery(text_of(10**6 + number), vectors[number])
        faiss, milvus = (first(data, query, mode, where) for data in both)
        assert len(faiss) == len(milvus) == 10
        same += [hit.id for hit in faiss] == [hit.id for hit in milvus]
        assert [hit.score for hit in milvus] == pytest.approx(
            [hit.score for hit in faiss], abs=1e-5
        )
    assert same >= SHARE * queries
