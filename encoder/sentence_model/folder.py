"""A folder that sentence-transformers saved, described as a checkpoint before a tensor is read.

modules.json                         the modules: a Transformer, a Pooling, perhaps a Normalize
config_sentence_transformers.json    optional: prompts by name
sentence_bert_config.json            optional: the most tokens that it reads
config.json, tokenizer.json          of the Transformer
onnx/model*.onnx                     optional: its graphs; where it has one, no torch is needed
model*.safetensors                   its weights, read by torch where there is no graph
1_Pooling/config.json                how the vectors of its tokens become one
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.checkpoint import (
    CONFIG,
    PRECISIONS,
    SENTENCE_MODEL,
    TOKENIZER,
    Checkpoint,
    file_digest,
)
from encoder.errors import CheckpointError
from encoder.sentence_model.name import SentenceModelName
from encoder.tokenizer import load_tokenizer

MODULES = "modules.json"
POOLINGS = ("mean", "cls", "lasttoken")
SHORTEST_BLOCK, DEFAULT_BLOCK, LONGEST_BLOCK = 64, 256, 8_192  # tokens
LARGEST_BYTES = 16 * 2**30  # of the weights
_READ_TOKENS = 65_536  # of a document, as many as the checkpoints that ship
# The graphs of each precision by their file names, as optimum and sentence-transformers write them.
_GRAPHS = {
    "fp32": ("model.onnx",),
    "fp16": ("model_fp16.onnx",),
    "int8": ("model_int8.onnx", "model_quantized.onnx", "model_qint8_*.onnx"),
}
# These count positions from after the padding token.
_OFFSET_POSITIONS = ("camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl")


@dataclass(frozen=True, slots=True)
class SentenceModel:
    """What a sentence model is, beyond a checkpoint; of `Checkpoint.model`.

    Attributes:
        graphs: files relative to the directory, by precision; empty where torch reads the weights.
        pooling: one of `POOLINGS`.
        pools_prompt: whether the tokens of the prompt count in the mean.
        width: of the vector of a token.
        before: token ids before the text of a block: special tokens and the prompt.
        after: token ids after it.
        spaced: whether a space is between the prompt and the text.
    """

    graphs: Mapping[str, str]
    pooling: str
    pools_prompt: bool
    width: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    spaced: bool


def is_sentence_model(folder: Path) -> bool:
    """Whether a folder is of a model of transformers, and none of our checkpoints."""
    return (
        any((folder / name).exists() for name in (MODULES, CONFIG))
        and not (folder / "manifest.json").exists()
    )


def load_sentence_model(name: SentenceModelName) -> Checkpoint:
    """Describe a sentence model, having verified all that it consists of.

    Raises:
        CheckpointError: it cannot be used, with the file or option that says so.
    """
    directory = name.locate()
    pooling, pools_prompt, width = _read_pooling(directory / _read_modules(directory) / CONFIG)
    config = _read_transformer_config(directory / CONFIG)
    about = _read_object(directory / "config_sentence_transformers.json", optional=True)
    prompt = _choose_prompt(about, name)
    limit = _token_limit(directory, config)
    graphs, weights = _find_weights(directory)
    tokenizer_file = directory / TOKENIZER
    if not tokenizer_file.exists():
        raise CheckpointError(f"{tokenizer_file} is missing: it says what the tokens of a text are")
    block = _choose_length("block", name.block, min(DEFAULT_BLOCK, limit), SHORTEST_BLOCK, limit)
    default = int(about.get("truncate_dim") or width)
    dimension = _choose_length("dimension", name.dimension, default, 1, width)
    files = {path.relative_to(directory).as_posix(): file_digest(path) for path in weights}
    files |= {TOKENIZER: file_digest(tokenizer_file)}
    before, prompted, after = _surrounding_tokens(tokenizer_file, prompt)
    if block - len(before) - len(after) - len(prompted) < SHORTEST_BLOCK // 2:
        raise CheckpointError(
            f"{directory}: the prompt takes {len(prompted)} of the {block} tokens of a block: "
            "choose a longer block"
        )
    model = SentenceModel(
        graphs=graphs,
        pooling=pooling,
        pools_prompt=pools_prompt,
        width=width,
        before=(*before, *prompted),
        after=after,
        spaced=prompt.endswith(" "),
    )
    decisive = [sorted(files.items()), config, pooling, pools_prompt, prompt, block, dimension]
    content = json.dumps([*decisive, name.language], sort_keys=True)
    return Checkpoint(
        directory=directory,
        name=name.folder.name,
        architecture=SENTENCE_MODEL,
        fingerprint=hashlib.sha256(content.encode()).hexdigest(),
        block_length=block,
        max_blocks=_READ_TOKENS // block,
        long_sentence="split",
        language=name.language,
        start_token=before[0] if before else 0,
        end_token=after[-1] if after else 0,
        padding_token=int(config.get("pad_token_id") or 0),
        block_dimension=dimension,
        dimension=dimension,
        model={
            "sentence_model": model,
            "reserved_tokens": len(model.before) + len(after),
            "vocabulary_size": int(config.get("vocab_size", 2**31)),
        },
        precisions=tuple(p for p in PRECISIONS if p in graphs) or ("fp16", "fp32"),
        files=files,
        source=name.source,
    )


def _read_modules(directory: Path) -> str:
    """Return the folder of the Pooling, having checked all modules."""
    about = _read_object(directory / "config_sentence_transformers.json", optional=True)
    kind = about.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise CheckpointError(
            f"{directory}: is a {kind}, which does not encode one text: name a SentenceTransformer"
        )
    path = directory / MODULES
    if not path.exists():
        config = _read_object(directory / CONFIG, optional=True)
        if any("SequenceClassification" in str(name) for name in config.get("architectures", ())):
            raise CheckpointError(
                f"{directory}: is a reranker or classifier, not an encoder of texts"
            )
        raise CheckpointError(
            f"{directory}: has no {MODULES}, which says how its vectors are "
            "pooled: save it with sentence-transformers"
        )
    modules = _read_json(path)
    try:
        kinds = [str(module["type"]) for module in modules]
        folders = [str(module["path"]) for module in modules]
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: not understood: {error!r}") from error
    for kind in kinds:
        if not kind.startswith("sentence_transformers."):
            raise CheckpointError(f"{path}: {kind} is code of the model, which is never run")
    names = [kind.rpartition(".")[2] for kind in kinds]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointError(
            f"{path}: modules {', '.join(names)}: only Transformer, Pooling and perhaps Normalize, "
            "in this order, are supported"
        )
    if folders[0] or Path(folders[1]).name != folders[1]:
        raise CheckpointError(
            f"{path}: path: the Transformer must lie in the folder itself, and the Pooling in one "
            f"below it, not in {folders[0]!r} and {folders[1]!r}: save it again"
        )
    return folders[1]


def _read_pooling(path: Path) -> tuple[str, bool, int]:
    config = _read_object(path)
    modes = config.get("pooling_mode")
    if modes is None:  # before version 5.2 of sentence-transformers
        start, end = "pooling_mode_", ("_tokens", "_token")
        modes = [
            key.removeprefix(start).removesuffix(end[0]).removesuffix(end[1])
            for key, chosen in config.items()
            if key.startswith(start) and chosen is True
        ]
    modes = [modes] if isinstance(modes, str) else modes
    width = config.get("embedding_dimension", config.get("word_embedding_dimension"))
    if not isinstance(width, int) or width < 1:
        raise CheckpointError(f"{path}: embedding_dimension {width!r} is not a positive integer")
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{path}: pooling {modes!r}: supported: {', '.join(POOLINGS)}")
    return modes[0], bool(config.get("include_prompt", True)), width


def _read_transformer_config(path: Path) -> dict[str, Any]:
    config = _read_object(path)
    if config.get("auto_map"):
        raise CheckpointError(f"{path}: auto_map: is code of the model, which is never run")
    if config.get("is_encoder_decoder"):
        raise CheckpointError(f"{path}: an encoder with a decoder is not supported")
    return config


def _choose_prompt(about: Mapping[str, Any], name: SentenceModelName) -> str:
    prompts = about.get("prompts") or {}
    chosen = name.prompt if name.prompt is not None else about.get("default_prompt_name")
    if not chosen:
        return ""
    if not isinstance(prompts, dict) or not isinstance(prompts.get(chosen), str):
        having = ", ".join(sorted(prompts)) or "none"
        raise CheckpointError(f"{name.folder}: has no prompt {chosen!r}; it has: {having}")
    return str(prompts[chosen])


def _token_limit(directory: Path, config: Mapping[str, Any]) -> int:
    """Return the most tokens of a block, which is what the model reads."""
    limits = [LONGEST_BLOCK]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int):
        offset = int(config.get("pad_token_id") or 0) + 1
        limits.append(positions - (offset if config["model_type"] in _OFFSET_POSITIONS else 0))
    for file, key in (
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "model_max_length"),
    ):
        limit = _read_object(directory / file, optional=True).get(key)
        if isinstance(limit, int):
            limits.append(limit)
    if min(limits) < SHORTEST_BLOCK:
        raise CheckpointError(
            f"{directory}: reads {min(limits)} tokens; a block has at least {SHORTEST_BLOCK}"
        )
    return min(limits)


def _find_weights(directory: Path) -> tuple[dict[str, str], list[Path]]:
    """Return the graphs by precision, and the files that the vectors depend on."""
    graphs: dict[str, Path] = {}
    for precision, patterns in _GRAPHS.items():
        found = [path for name in patterns for path in sorted(directory.glob(f"onnx/{name}"))]
        graphs |= {precision: found[0]} if found else {}
    weights = sorted(directory.glob("model*.safetensors"))
    if graphs:
        data = [path.with_name(f"{path.name}_data") for path in graphs.values()]
        weights = [*graphs.values(), *(path for path in data if path.exists())]
    if not weights:
        pickled = any(directory.glob("*.bin")) or any(directory.glob("*.pt"))
        reason = (
            "has its weights as pickle only, which runs code when it is read: save it as safetensors"
            if pickled
            else "has neither onnx/model.onnx nor model.safetensors"
        )
        raise CheckpointError(f"{directory}: {reason}")
    size = sum(path.stat().st_size for path in weights)
    if size > LARGEST_BYTES:
        raise CheckpointError(
            f"{directory}: weights of {size / 2**30:.1f} GiB: the limit is "
            f"{LARGEST_BYTES // 2**30} GiB"
        )
    if not graphs:
        _require_torch(directory)
    return {
        precision: path.relative_to(directory).as_posix() for precision, path in graphs.items()
    }, weights


def _require_torch(where: Path) -> None:
    """Check that what reads weights is installed."""
    for module in ("torch", "transformers"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"{where}: has no onnx/model.onnx, and {module} is not installed, which reads its "
                "weights: pip install 'longmatch[sentence-models]'"
            ) from error


def _surrounding_tokens(
    path: Path, prompt: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens before a text, those of the prompt, and the special ones after."""
    tokenizer = load_tokenizer(path.read_bytes(), path)
    with_special = tokenizer.encode("a")
    text = [place for place, special in enumerate(with_special.special_tokens_mask) if not special]
    if not text:
        raise CheckpointError(f"{path}: the text 'a' has no token")
    tokenizer.encode_special_tokens = False
    prompted = tokenizer.encode(prompt.rstrip(" "), add_special_tokens=False).ids if prompt else []
    ids = with_special.ids
    return tuple(ids[: text[0]]), tuple(prompted), tuple(ids[text[-1] + 1 :])


def _choose_length(
    option: str, chosen: int | None, default: int, smallest: int, largest: int
) -> int:
    length = default if chosen is None else chosen
    if not smallest <= length <= largest:
        raise CheckpointError(
            f"{option}={length}: must be from {smallest} to {largest}, the most of this model"
        )
    return length


def _read_object(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.exists():
        return {}
    content = _read_json(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return content


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from error
