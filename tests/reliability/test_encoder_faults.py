"""R3: the n-th call of the encoder fails, n = 1, 2, … until none is left that could.

What fails is real where it can be: ONNX Runtime refuses its inputs, or fails in the middle.
"""

import asyncio
from itertools import product
from operator import attrgetter
from typing import Any

import httpx
import numpy as np
import pytest

from service.engine import Engine
from tests.kit.tiers import Tier
from tests.reliability.conftest import (
    LINES,
    NEW,
    REQUESTS,
    RIVER,
    Call,
    NthCall,
    Raise,
    ended,
    failed,
    lines,
    run_out_of_memory,
    send,
    sound,
    stored,
)


def refuse_inputs(run: Call) -> None:
    """Let ONNX Runtime raise one of its own errors."""
    run(None, {"no such input": np.zeros(1, dtype=np.float32)})
    pytest.fail("ONNX Runtime took it")


def fail_in_the_graph(run: Call) -> None:
    """Let ONNX Runtime fail at a token that no vocabulary has, in the middle of its work."""
    tokens = np.full((1, 4), 2**40, dtype=np.int64)
    run(None, {"input_ids": tokens, "attention_mask": np.ones_like(tokens)})
    pytest.fail("ONNX Runtime took it")


# What may fail while texts are encoded: an object of the engine, its method, and how it fails.
ENCODER_FAULTS: dict[str, tuple[str, str, Raise]] = {
    "inputs of the block graph": ("encoder._graphs.block", "run", refuse_inputs),
    "block graph": ("encoder._graphs.block", "run", fail_in_the_graph),
    "inputs of the document graph": ("encoder._graphs.document", "run", refuse_inputs),
    "memory of the block graph": ("encoder._graphs.block", "run", run_out_of_memory),
    "memory of the document graph": ("encoder._graphs.document", "run", run_out_of_memory),
    "memory of the tokenizer": ("encoder.read", "_tokenise", run_out_of_memory),
    "memory of a worker after a call": ("metrics.encoded_blocks", "inc", run_out_of_memory),
    "memory of the queue": ("scheduler.queue", "store_vectors", run_out_of_memory),
}


def call_of(engine: Engine, fault: str) -> NthCall:
    owner, name, failure = ENCODER_FAULTS[fault]
    return NthCall(attrgetter(owner)(engine), name, failure)


# Every fault in one of the requests, in turn; a sweep tries every one in each.
NTH_CALLS = [
    pytest.param(*pair, marks=() if number % len(REQUESTS) == 0 else pytest.mark.slow)
    for number, pair in enumerate(product(REQUESTS, ENCODER_FAULTS))
]


@pytest.mark.parametrize(("request_name", "fault"), NTH_CALLS)
def test_the_nth_call_of_the_encoder_fails(
    client: Any, request_name: str, fault: str, tier: Tier
) -> None:
    call = call_of(client.app.state.engine, fault)
    for number in tier.numbers(200):
        with call.fails(number):
            response = send(client, request_name)
        if response.status_code == 200 and call.left > 0:
            break
        failed(response, "encoding-failed", "internal-error")
        assert stored(client) == set()
    else:
        pytest.fail("there is always one more call")
    assert number > 1
    assert stored(client) == (set(NEW) if request_name == "index" else set())
    sound(client)


def test_requests_beside_a_failed_encoding_are_answered(client: Any, connected: Any) -> None:
    call = NthCall(client.app.state.engine.encoder._graphs.block, "run", fail_in_the_graph)

    async def run() -> list[httpx.Response]:
        async with connected(client.app) as http:
            bodies = [{"text": f"{RIVER} {number}."} for number in range(6)]
            return await asyncio.gather(*(http.post("/match", json=body) for body in bodies))

    with call.fails(5):
        responses = asyncio.run(asyncio.wait_for(run(), 120))
    assert sorted(response.status_code for response in responses) == [200] * 5 + [500]
    sound(client)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    "fault",
    ["block graph", pytest.param("memory of the document graph", marks=pytest.mark.slow)],
)
def test_a_job_goes_on_after_the_encoder_failed(client: Any, fault: str) -> None:
    call = call_of(client.app.state.engine, fault)
    for number in (1, 2, 5, 1000):
        with call.fails(number):
            job = ended(client, client.post("/index", content=lines(4), headers=LINES))
        assert (job["state"], job["indexed"], job["failed"]) == ("done", 4, 0)
        assert stored(client) == set(NEW)
        for name in (*NEW, "more 0", "more 1"):
            assert client.delete(f"/documents/{name}").is_success
    sound(client)
