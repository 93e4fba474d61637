"""Which encoder made a block archive, and the small JSON files that say so."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from encoder.checkpoint import BLOCK_GRAPH, TOKENIZER, Checkpoint
from encoder.durable_files import write_in_place
from encoder.errors import ArchiveError

FORMAT = 1
KEY = "archive.json"


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """What decides the content of an archive besides the texts.

    Attributes:
        block_encoder: SHA-256, in hex, of the graph that made the block vectors.
        tokenizer: SHA-256, in hex, of the tokenizer.
        block_length: tokens of a sentence block, special tokens included.
        long_sentence: what became of a sentence longer than a block.
        language: ISO 639-1 code, for the sentence splitter.
        max_blocks: sentence blocks of a document that were read.
        block_dimension: width H of a block vector.
        token_type: "uint16" or "uint32", as the vocabulary needs.
    """

    block_encoder: str
    tokenizer: str
    block_length: int
    long_sentence: str
    language: str
    max_blocks: int
    block_dimension: int
    token_type: str


def archive_key(
    checkpoint: Checkpoint, *, precision: str = "int8", max_blocks: int | None = None
) -> ArchiveKey:
    """Return the key of archives that a checkpoint makes and can read.

    Args:
        checkpoint: only its sentence level and its tokenizer count.
        precision: of the block graph.
        max_blocks: blocks read of a document; as many as the checkpoint reads when not given.

    Raises:
        ArchiveError: the checkpoint has no block graph of this precision.
    """
    graph = f"{precision}/{BLOCK_GRAPH}"
    if graph not in checkpoint.files:
        raise ArchiveError(f"{checkpoint.directory}: has no {graph}: export it first")
    vocabulary = int(checkpoint.model["vocabulary_size"])
    return ArchiveKey(
        block_encoder=checkpoint.files[graph],
        tokenizer=checkpoint.files[TOKENIZER],
        block_length=checkpoint.block_length,
        long_sentence=checkpoint.long_sentence,
        language=checkpoint.language,
        max_blocks=max_blocks or checkpoint.max_blocks,
        block_dimension=checkpoint.block_dimension,
        token_type="uint16" if vocabulary <= 2**16 else "uint32",
    )


def require_same(directory: Path, found: ArchiveKey, expected: ArchiveKey) -> None:
    """Refuse an archive that another encoder made.

    Raises:
        ArchiveError: naming what differs.
    """
    here, there = asdict(found), asdict(expected)
    differing = [
        f"{name} {str(here[name])[:12]}, not {str(there[name])[:12]}"
        for name in here
        if here[name] != there[name]
    ]
    if differing:
        raise ArchiveError(
            f"{directory}: this archive was made with another encoder "
            f"({'; '.join(differing)}): name another directory"
        )


def read_key(directory: Path) -> ArchiveKey:
    """Read what made an archive.

    Raises:
        ArchiveError: there is no archive, or its key is damaged.
    """
    content = read_json(directory / KEY)
    try:
        if content.pop("format") != FORMAT:
            raise ArchiveError(f"{directory / KEY}: the format is not {FORMAT}")
        return ArchiveKey(**content)
    except (KeyError, TypeError) as error:
        raise ArchiveError(f"{directory / KEY}: not understood: {error}") from error


def write_key(directory: Path, key: ArchiveKey) -> None:
    """Write what makes an archive.

    Raises:
        OSError: the disk did not take it.
    """
    replace_json(directory / KEY, {"format": FORMAT, **asdict(key)})


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ArchiveError: the file is missing, or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ArchiveError(f"{path}: is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ArchiveError(f"{path}: is not a JSON object")
    return content


def replace_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file, whole or not at all.

    Raises:
        OSError: the disk did not take it.
    """
    write_in_place(path, json.dumps(content))
