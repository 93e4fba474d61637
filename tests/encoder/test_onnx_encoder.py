import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from encoder.checkpoint import GOLDEN, Checkpoint, load_checkpoint, write_manifest
from encoder.errors import CheckpointError, ParityError
from encoder.golden import (
    MAXIMUM_DIFFERENCE,
    MINIMUM_COSINE,
    Parity,
    check_parity,
)
from encoder.onnx_encoder import OnnxEncoder

TEXT = "One sentence here. Another one follows it, and it is longer. A third ends the text."


@pytest.fixture(scope="module")
def checkpoint(tiny_checkpoint: Path) -> Checkpoint:
    return load_checkpoint(tiny_checkpoint)


@pytest.fixture(scope="module")
def encoder(checkpoint: Checkpoint) -> OnnxEncoder:
    return OnnxEncoder(checkpoint)


def test_a_cpu_takes_int8_and_one_block_a_call(encoder: OnnxEncoder) -> None:
    assert (encoder.precision, encoder.provider) == ("int8", "CPUExecutionProvider")
    assert encoder.batch_tokens == 0
    assert encoder.threads >= 1


def test_a_precision_that_is_not_there_is_named(checkpoint: Checkpoint) -> None:
    with pytest.raises(CheckpointError, match=r"int4.*fp32"):
        OnnxEncoder(checkpoint, precision="int4")


def test_many_threads_get_their_own_answers(encoder: OnnxEncoder) -> None:
    documents = [encoder.read(f"Document number {n}. " * (n + 1)) for n in range(20)]
    expected = encoder.encode(documents).document_vectors
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda d: encoder.encode([d]).document_vectors[0], documents * 3))
    assert np.array_equal(np.stack(answers), np.concatenate([expected] * 3))


def test_a_packed_document_without_a_block_is_refused(checkpoint: Checkpoint) -> None:
    packed = OnnxEncoder(checkpoint, batch_tokens=256)
    with pytest.raises(ValueError, match="no block"):
        packed.encode_documents(
            [[[7]], []], [packed.encode_blocks([[7]]), packed.encode_blocks([])]
        )


def test_graphs_that_differ_are_refused_at_warm_up(
    checkpoint: Checkpoint, encoder: OnnxEncoder, tmp_path: Path
) -> None:
    """As an int8 kernel that saturates would: the golden vectors are not what comes out."""
    copy = tmp_path / "other"
    shutil.copytree(checkpoint.directory, copy)
    golden = dict(np.load(copy / GOLDEN))
    np.savez(copy / GOLDEN, **golden | {"block_vectors": golden["block_vectors"][::-1]})
    write_manifest(copy)
    with pytest.raises(ParityError, match="block encoder"):
        OnnxEncoder(load_checkpoint(copy)).warm_up()


@pytest.mark.slow
def test_onnx_runtime_does_not_report_its_use(tmp_path: Path) -> None:
    code = "import training.export.export, os; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    quiet = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2],
        env=quiet | {"HOME": str(tmp_path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout.strip() == "1"
    assert not list(tmp_path.rglob("*"))  # the client keeps a file in the home folder


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_the_limits_pass_and_each_figure_alone_refuses(precision: str) -> None:
    cosine, difference = MINIMUM_COSINE[precision], MAXIMUM_DIFFERENCE[precision]
    limits = Parity(cosine, difference, cosine, difference)
    check_parity(limits, precision)
    for level in ("block", "document"):
        for figure, wrong in (("cosine", 0.9), ("difference", 0.2)):
            for value in (wrong, float("nan")):
                changed = replace(limits, **{f"{level}_{figure}": value})
                with pytest.raises(ParityError, match=f"{precision} {level}"):
                    check_parity(changed, precision)
