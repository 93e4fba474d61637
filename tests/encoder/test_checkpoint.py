import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from encoder.arrays import read_arrays
from encoder.checkpoint import (
    ALIGNMENT,
    BY_NAME,
    CALIBRATION,
    DEFAULT_CHECKPOINT,
    FUSION,
    SHIPPED,
    WEIGHTS,
    file_digest,
    find_checkpoint,
    is_shipped,
    load_checkpoint,
    mark_fingerprint,
    split_fingerprint,
    vector_space,
    with_reading_share,
    write_manifest,
)
from encoder.errors import CheckpointError
from encoder.onnx_encoder import OnnxEncoder
from encoder.opening import find_encoder


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    target = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, target)
    return target


def test_a_directory_that_is_no_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=str(tmp_path)):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="nowhere"):
        load_checkpoint(tmp_path / "nowhere")


FILES = ["config.json", "tokenizer.json", "int8/block_encoder.onnx", "int8/document_encoder.onnx"]


@pytest.mark.parametrize("name", [*FILES, "manifest.json", WEIGHTS])
@pytest.mark.parametrize("damage", ["missing", "changed", "cut", "pipe", "endless"])
def test_a_damaged_file_is_named(copy: Path, name: str, damage: str) -> None:
    path = copy / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "endless":
        path.symlink_to("/dev/zero")
    elif damage != "missing":
        path.write_bytes(data if damage == "changed" else data[:-100])
    with pytest.raises(CheckpointError, match=name.rpartition("/")[2].replace(".", r"\.")):
        OnnxEncoder(load_checkpoint(copy), precision="fp16" if name == WEIGHTS else "int8")


@pytest.mark.parametrize("manifest", ["", "[]", '{"format": 2}', '{"format": 1, "files": 3}'])
def test_a_manifest_that_is_not_understood(copy: Path, manifest: str) -> None:
    (copy / "manifest.json").write_text(manifest)
    with pytest.raises(CheckpointError, match=r"manifest|not understood"):
        load_checkpoint(copy)


def test_a_configuration_with_another_field_is_not_understood(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text()) | {"surprise": 1}
    (copy / "config.json").write_text(json.dumps(config))
    write_manifest(copy)
    with pytest.raises(CheckpointError, match="surprise"):
        load_checkpoint(copy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("block_length", 2), ("max_blocks", "8"), ("block_dimension", -1), ("dimension", 10**30)),
        *(("dimension", 31), ("start_token", None), ("padding_token", 0.5), ("language", 5)),
        *(("name", "a\x1b[2J"), ("architecture", []), ("long_sentence", "cut"), ("model", [])),
        *(("block_length", 17), ("block_length", 8193), ("start_token", 2**30)),
        ("model", {"reserved_tokens": 16}),
    ],
)
def test_a_value_that_a_field_cannot_have_is_named(copy: Path, field: str, value: object) -> None:
    config = json.loads((copy / "config.json").read_text()) | {field: value}
    (copy / "config.json").write_text(json.dumps(config))
    write_manifest(copy)
    name = next(iter(value)) if isinstance(value, dict) else field
    with pytest.raises(CheckpointError, match=name):
        OnnxEncoder(load_checkpoint(copy)).warm_up()


MAX_ARRAY_BYTES = 2**20


@pytest.mark.parametrize("damage", ["text", "zip", "objects", "more than there is", "bomb", "nan"])
def test_arrays_that_cannot_be_read_are_refused(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("encoder.arrays.MAX_ARRAY_BYTES", MAX_ARRAY_BYTES)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        count = {"more than there is": 2**50, "bomb": MAX_ARRAY_BYTES // 4}.get(damage, 2)
        head = {"descr": "|O" if damage == "objects" else "<f4", "fortran_order": False}
        with archive.open("weights.npy", "w") as member:
            np.lib.format.write_array_header_1_0(member, {**head, "shape": (count,)})
            member.write(bytes(MAX_ARRAY_BYTES if damage == "bomb" else 0))
            member.write(np.full(2, np.nan, np.float32).tobytes() if damage == "nan" else b"")
    whole = file.getvalue()
    data = {"text": b"weights", "zip": whole[:-9] + b"\xff" * 9}.get(damage, whole)
    with pytest.raises(ValueError, match={"bomb": "unpacked", "nan": "finite"}.get(damage, ".")):
        read_arrays(data)


def test_the_fingerprint_is_of_the_weights_not_the_precisions(copy: Path) -> None:
    before = load_checkpoint(copy)
    assert set(before.precisions) == {"fp32", "fp16", "int8"}
    shutil.rmtree(copy / "fp16")
    write_manifest(copy)
    fewer = load_checkpoint(copy)
    assert fewer.precisions == ("int8", "fp32")
    assert fewer.fingerprint == before.fingerprint
    weights = (copy / "weights.safetensors").read_bytes()
    (copy / "weights.safetensors").unlink()
    shutil.copytree(before.directory / "fp32", copy / "fp16", dirs_exist_ok=True)
    write_manifest(copy)  # the weights need not be there
    assert load_checkpoint(copy).precisions == ("int8", "fp32")  # but for fp16
    assert load_checkpoint(copy).fingerprint == before.fingerprint
    (copy / "weights.safetensors").write_bytes(weights + b"\0")
    write_manifest(copy)
    assert load_checkpoint(copy).fingerprint != before.fingerprint


def test_a_bare_name_is_that_of_a_checkpoint_that_ships(
    tiny_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_checkpoint(Path("best")) == DEFAULT_CHECKPOINT
    assert find_checkpoint(Path(DEFAULT_CHECKPOINT.name)) == DEFAULT_CHECKPOINT
    assert find_checkpoint(tiny_checkpoint) == tiny_checkpoint
    for unknown in (Path("nothing-of-this-name"), Path("folder") / "best"):
        assert find_checkpoint(unknown) == unknown
    (tmp_path / "fast").mkdir()
    monkeypatch.chdir(tmp_path)  # what a user has goes before what ships
    assert find_checkpoint(Path("fast")) == Path("fast")
    assert is_shipped(DEFAULT_CHECKPOINT)
    assert not is_shipped(tiny_checkpoint)


def test_shipped_checkpoints_are_complete_and_different() -> None:
    shipped = {name: load_checkpoint(find_checkpoint(Path(name))) for name in BY_NAME}
    assert len({checkpoint.fingerprint for checkpoint in shipped.values()}) == len(BY_NAME)
    assert find_encoder(None) == shipped["best"]
    for checkpoint in shipped.values():
        assert is_shipped(checkpoint.directory)
        assert checkpoint.precisions in (("int8",), ("int8", "fp16"))
        OnnxEncoder(checkpoint).warm_up()
        assert {ALIGNMENT, CALIBRATION, FUSION} <= checkpoint.files.keys()
        assert (checkpoint.directory / "MODEL_CARD.md").exists()
    found = [path for path in SHIPPED.rglob("*") if path.is_file()]
    assert len({file_digest(path) for path in found}) == len(found)  # each is stored once


@pytest.fixture
def sharing(copy: Path) -> Path:
    """A checkpoint that shares its tokenizer and a graph with the one in the folder next to it."""
    directory = Path(shutil.copytree(copy, copy.parent / "sharing"))
    manifest = json.loads((directory / "manifest.json").read_text())
    names = ("tokenizer.json", "int8/document_encoder.onnx")
    for name in names:
        (directory / name).unlink()
    manifest["shared"] = dict.fromkeys(names, copy.name)
    (directory / "manifest.json").write_text(json.dumps(manifest))
    return directory


def test_a_shared_file_is_read_from_the_other_checkpoint(copy: Path, sharing: Path) -> None:
    found = load_checkpoint(sharing)
    assert found.fingerprint == load_checkpoint(copy).fingerprint
    OnnxEncoder(found, precision="int8").warm_up()
    (sharing / "quality.json").unlink(missing_ok=True)
    write_manifest(sharing)  # what is shared stays shared
    assert "int8/document_encoder.onnx" in load_checkpoint(sharing).files
    shutil.copy(copy / "tokenizer.json", sharing)
    write_manifest(sharing)
    shared = json.loads((sharing / "manifest.json").read_text())["shared"]
    assert list(shared) == ["int8/document_encoder.onnx"]


def test_a_shared_file_is_verified_and_next_to_it(
    copy: Path, sharing: Path, tmp_path: Path
) -> None:
    alone = Path(shutil.copytree(sharing, tmp_path / "elsewhere" / "alone"))
    with pytest.raises(CheckpointError, match="copy the folder 'checkpoint' next to 'alone'"):
        load_checkpoint(alone)
    with (copy / "int8" / "document_encoder.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(CheckpointError, match=r"checkpoint/int8/document_encoder\.onnx is not"):
        OnnxEncoder(load_checkpoint(sharing), precision="int8")
    text = (sharing / "manifest.json").read_text()
    for folder in ("../checkpoint", ".."):
        (sharing / "manifest.json").write_text(text.replace('"checkpoint"', f'"{folder}"'))
        with pytest.raises(CheckpointError, match=f"shared: '{folder}' is not the name"):
            load_checkpoint(sharing)


def test_a_fingerprint_names_the_share(tiny_checkpoint: Path) -> None:
    whole = load_checkpoint(tiny_checkpoint)
    some = with_reading_share(whole, 0.35)
    assert vector_space(whole).fingerprint == whole.fingerprint == some.fingerprint
    marked = vector_space(some).fingerprint
    assert marked != whole.fingerprint
    assert split_fingerprint(marked) == (whole.fingerprint, 0.35)
    assert split_fingerprint(whole.fingerprint) == (whole.fingerprint, 1.0)


def test_fingerprints_give_back_the_share() -> None:
    for share in (0.01, 0.29, 0.99, 1.0):
        assert split_fingerprint(mark_fingerprint("abc", share)) == ("abc", share)
    for marked in ("abc-other-0.35", "abc-coverage-x", "abc-coverage-7", "abc-"):
        assert split_fingerprint(marked) == (marked, 1.0)


@pytest.mark.parametrize("share", [0.0, 1.01, 0.123, float("nan")])
def test_what_is_no_share_is_refused(tiny_checkpoint: Path, share: float) -> None:
    with pytest.raises(ValueError, match=r"is not from 0\.01 to 1"):
        with_reading_share(load_checkpoint(tiny_checkpoint), share)


def test_models_whose_blocks_depend_on_others_encode_all(
    tiny_ernie_doc: Path, tiny_colde: Path, sentence_model: Callable[[str], Path]
) -> None:
    for directory in (tiny_ernie_doc, tiny_colde, sentence_model("bert")):
        checkpoint = find_encoder(str(directory))
        with pytest.raises(CheckpointError, match="encodes every sentence block"):
            with_reading_share(checkpoint, 0.5)
        assert with_reading_share(checkpoint, 1.0) == checkpoint
