"""Runs fastembed or Infinity for `benchmarks.speed.encoder`, under the Python that has it.

Started as a script: `python peer_worker.py NAME MODEL THREADS`. Imports nothing of Longmatch. Each
line of standard input is a JSON list of texts; each line of the answer, after a first one that says
the best batch size and the versions, is {"seconds": …, "vectors": [[…]]}.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

Embed = Callable[[list[str]], Any]  # texts -> a list of vectors
BATCH_SIZES = (1, 8, 32)
CHUNK_TOKENS = 256


def open_fastembed(model: str, threads: int) -> dict[int, Embed]:
    """Open an ONNX model by fastembed, for each batch size, to read chunks whole."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = "benchmark/model"
    TextEmbedding.add_custom_model(
        model=name,
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf=name),
        dim=384,
        model_file="onnx/model.onnx",
    )
    opened = TextEmbedding(name, specific_model_path=model, threads=threads)
    opened.model.tokenizer.enable_truncation(max_length=CHUNK_TOKENS)  # the model's files say 128

    def embed(size: int, texts: list[str]) -> list[list[float]]:
        return [list(map(float, vector)) for vector in opened.embed(texts, size)]

    return {size: partial(embed, size) for size in BATCH_SIZES}


def open_infinity(model: str, threads: int) -> dict[int, Embed]:
    """Open a PyTorch model by Infinity's engine, for each batch size, in this process."""
    import torch
    from infinity_emb import AsyncEmbeddingEngine, EngineArgs

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    loop = asyncio.new_event_loop()

    def opened(size: int) -> Embed:
        arguments = EngineArgs(
            model_name_or_path=model,
            engine="torch",
            device="cpu",
            batch_size=size,
            dtype="float32",
            bettertransformer=True,
            model_warmup=False,
        )
        engine = AsyncEmbeddingEngine.from_args(arguments)
        loop.run_until_complete(engine.astart())

        def embed(texts: list[str]) -> Any:
            vectors, _ = loop.run_until_complete(engine.embed(sentences=texts))
            return [list(map(float, vector)) for vector in vectors]

        return embed

    return {size: opened(size) for size in BATCH_SIZES[1:]}


OPEN = {"fastembed": open_fastembed, "infinity": open_infinity}
PACKAGES = {
    "fastembed": ("fastembed", "onnxruntime"),
    "infinity": ("infinity-emb", "torch", "optimum"),
}


def main(name: str, model: str, threads: str) -> None:
    """Answer until standard input ends; the first texts are for finding the best batch size."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    embeds = OPEN[name](model, int(threads))
    size = 0
    answer: dict[str, Any]
    for line in sys.stdin:
        texts = json.loads(line)
        if not size:
            taken = {
                batch_size: min(timed(embed, texts)[0] for _ in "abc")
                for batch_size, embed in embeds.items()
            }
            size = min(taken, key=lambda batch_size: taken[batch_size])
            answer = {"batch_size": size, "versions": {p: version(p) for p in PACKAGES[name]}}
        else:
            seconds, vectors = timed(embeds[size], texts)
            answer = {"seconds": seconds, "vectors": vectors}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def timed(embed: Embed, texts: list[str]) -> tuple[float, Any]:
    """Return the seconds that texts take, and their vectors."""
    started = time.perf_counter()
    vectors = embed(texts)
    return time.perf_counter() - started, vectors


if __name__ == "__main__":
    main(*sys.argv[1:])
