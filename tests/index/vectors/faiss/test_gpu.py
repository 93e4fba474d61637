"""What there is of FAISS on a GPU where there is none: it says so, and nothing is lost."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import faiss
import numpy as np
import pytest
from faiss.contrib.ivf_tools import add_preassigned

from index.vectors.faiss import exact, gpu, ivf
from index.vectors.vector_index import Precision
from tests.kit.index_fixtures import DIMENSION, unit_vectors


def test_a_faiss_for_a_cpu_has_no_gpu() -> None:
    large = unit_vectors(2_100, seed=1)
    assert not gpu.gpu_is_used()
    assert not gpu.is_worth_it(len(large), len(large))
    assert not gpu.train(ivf.untrained_index(DIMENSION, 4, "fp32"), large)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_index_that_assigns_for_it_trains_the_same_lists(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU does, with an index on the CPU in its place."""
    monkeypatch.setattr(gpu, "gpu_is_used", lambda: True)
    monkeypatch.setattr(gpu, "_resources", object)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda _, number, flat: flat, raising=False)
    sample = unit_vectors(600, seed=1)
    plain, other = (ivf.untrained_index(DIMENSION, 8, precision) for _ in range(2))
    plain.train(sample)
    assert gpu.train(other, sample)
    assert other.is_trained
    centroids = [index.quantizer.reconstruct_n(0, 8) for index in (plain, other)]
    assert np.allclose(*centroids, atol=1e-6)
    del sample  # the index that assigned is gone, and is not used any more
    vectors = unit_vectors(50, seed=2)
    lists = ivf.nearest_lists(other, vectors)
    add_preassigned(other, vectors, lists, np.arange(50))
    found = ivf.search_nearest_lists(other, vectors, 1, 8)
    assert found.ids[:, 0].tolist() == list(range(50))


def test_one_thread_owns_the_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_resources", threading.get_ident)
    with ThreadPoolExecutor(4) as pool:
        owners = set(pool.map(lambda _: gpu.run(lambda owner: owner), range(20)))
        users = set(pool.map(lambda _: gpu.run(lambda _: threading.get_ident()), range(20)))
    assert len(owners) == 1
    assert users == owners != {threading.get_ident()}


def test_a_failure_is_reported_and_the_next_call_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(resources: object) -> int:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu, "_resources", object)
    with caplog.at_level(logging.WARNING):
        assert gpu.run(fail) is None
    assert "out of memory" in caplog.text
    assert gpu.run(lambda resources: 7) == 7


@pytest.mark.parametrize("k", [1, 7, 300])
def test_exact_search_equals_all_products(k: int) -> None:
    vectors, queries = unit_vectors(300, seed=1), unit_vectors(20, seed=3)
    scores, rows = exact.nearest(queries, vectors, k)
    every = queries @ vectors.T
    assert np.allclose(scores, -np.sort(-every, axis=1)[:, :k], atol=1e-6)
    assert np.allclose(np.take_along_axis(every, rows, axis=1), scores, atol=1e-6)
    assert np.allclose(exact.products(queries, vectors), every)
