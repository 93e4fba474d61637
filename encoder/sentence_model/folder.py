"""A folder that sentence-transformers saved, described as a checkpoint before a tensor is read.

modules.json                         the modules: a Transformer and a Pooling, or a StaticEmbedding;
                                     perhaps a Normalize
config_sentence_transformers.json    optional: prompts by name
sentence_bert_config.json            optional: the most tokens that it reads
config.json, tokenizer.json          of the Transformer
onnx/model*.onnx                     optional: its graphs; where it has one, no torch is needed
model*.safetensors                   its weights, read by torch where there is no graph
1_Pooling/config.json                how the vectors of its tokens become one

A StaticEmbedding is a table of a vector for each token: tokenizer.json and model.safetensors in the
folder of the module, as sentence-transformers or model2vec writes them.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.arrays import Float32
from encoder.checkpoint import (
    CONFIG,
    LONGEST_BLOCK,
    MANIFEST,
    PRECISIONS,
    SENTENCE_MODEL,
    TOKENIZER,
    Checkpoint,
    file_digest,
    read_file,
    read_json,
    read_object,
)
from encoder.errors import CheckpointError
from encoder.sentence_model.name import SentenceModelName, choose
from encoder.tokenizer import load_tokenizer

MODULES = "modules.json"
POOLINGS = ("mean", "cls", "lasttoken")
SHORTEST_BLOCK, DEFAULT_BLOCK = 64, 256  # tokens
LARGEST_BYTES = 16 * 2**30  # of the weights
_READ_TOKENS = 65_536  # of a document, as many as the checkpoints that ship
_CODE = (
    "code that a model brings is never run here: take a folder of it with onnx/model.onnx, or "
    "start a server of embeddings that may run it, with --encoder http://HOST:PORT"
)
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
        static: whether a token has the same vector in every text.
    """

    graphs: Mapping[str, str]
    pooling: str
    pools_prompt: bool
    width: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    static: bool


def is_sentence_model(folder: Path) -> bool:
    """Whether a folder is of a model of transformers, and none of our checkpoints."""
    named = [(folder / name).exists() for name in (MODULES, CONFIG)]
    return any(named) and not (folder / MANIFEST).exists()


def load_sentence_model(name: SentenceModelName) -> Checkpoint:
    """Describe a sentence model, having verified all that it consists of.

    Raises:
        CheckpointError: it cannot be used, with the file or option that says so.
    """
    directory = name.locate()
    try:
        return _describe(directory, name)
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise CheckpointError(f"{directory}: not understood: {error!r}") from error


def _describe(directory: Path, name: SentenceModelName) -> Checkpoint:
    about = _read_optional(directory / "config_sentence_transformers.json")
    folder, static = _read_modules(directory, about)
    if static:
        directory /= folder
    config = {} if static else read_object(directory / CONFIG)
    if config.get("is_encoder_decoder"):
        raise CheckpointError(
            f"{directory / CONFIG}: is_encoder_decoder: a model that has a decoder beside the "
            "encoder is not supported"
        )
    graphs, weights = _find_weights(directory, static=static)
    if config.get("auto_map") and not graphs:
        raise CheckpointError(f"{directory / CONFIG}: auto_map: {_CODE}")
    unless_graphs: tuple[str, ...] = ("fp16", "fp32")
    if static:
        unless_graphs = ("fp32",)
        pooling, pools_prompt = "mean", True
        vocabulary, width = read_table(directory).shape
    else:
        pooling, pools_prompt, width = _read_pooling(directory / folder)
        vocabulary = int(config.get("vocab_size", 2**31))
    prompt = _choose_prompt(about, name)
    limit = _token_limit(directory, config)
    block = choose("block", name.block, min(DEFAULT_BLOCK, limit), SHORTEST_BLOCK, limit)
    default = int(about.get("truncate_dim") or width)
    dimension = choose("dimension", name.dimension, default, 1, width)
    before, prompted, after = _surrounding_tokens(directory / TOKENIZER, prompt)
    if static:
        before = after = ()
        most = load_tokenizer((directory / TOKENIZER).read_bytes(), directory).get_vocab_size()
        if most > vocabulary:
            raise CheckpointError(f"{directory}: has {vocabulary} vectors for {most} tokens")
    reserved = len(before) + len(prompted) + len(after)
    if 2 * reserved > block:
        raise CheckpointError(
            f"{directory}: prompt and special tokens take {reserved} of the {block} tokens of a "
            "block, over half: choose a longer block"
        )
    names = [TOKENIZER, *weights]
    files = {file: file_digest(directory / file) for file in names}
    read = (*before, *prompted)
    model = SentenceModel(graphs, pooling, pools_prompt, width, read, after, static=static)
    decisive = [files, config, pooling, pools_prompt, prompt, block, dimension, name.language]
    return Checkpoint(
        directory=directory,
        name=name.folder.name,
        architecture=SENTENCE_MODEL,
        fingerprint=hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest(),
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
            "reserved_tokens": reserved,
            "space": " " if prompt.endswith(" ") else "",
            "vocabulary_size": vocabulary,
        },
        precisions=tuple(p for p in PRECISIONS if p in graphs) or unless_graphs,
        files=files,
        source=name.source,
    )


def _read_modules(directory: Path, about: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the folder of the Pooling, or of the StaticEmbedding, and whether it is the latter."""
    path = directory / MODULES
    classes = [about.get("model_type", "SentenceTransformer")]
    if not path.exists():
        classes += _read_optional(directory / CONFIG).get("architectures", ())
    if classes[0] != "SentenceTransformer" or "SequenceClassification" in str(classes):
        raise CheckpointError(f"{directory}: {classes[-1]}: a reranker, or no encoder of texts")
    modules = read_json(path)
    kinds = [str(module["type"]) for module in modules]
    folders = [str(module["path"]) for module in modules]
    names = [kind.rpartition(".")[2] for kind in kinds]
    static = names[:1] == ["StaticEmbedding"]
    reading = names[:1] if static else ["Transformer", "Pooling"]
    if names not in (reading, [*reading, "Normalize"]) or not all(
        kind.startswith("sentence_transformers.") for kind in kinds
    ):
        raise CheckpointError(
            f"{path}: {', '.join(kinds)}: not Transformer and Pooling, or StaticEmbedding, and "
            f"perhaps Normalize, of sentence-transformers; {_CODE}"
        )
    folder = str(Path(folders[0 if static else 1]))  # model2vec writes "."
    if (folders[0] and not static) or Path(folder).name not in (folder, "") or folder == "..":
        raise CheckpointError(f"{path}: path: not where sentence-transformers puts the modules")
    return folder, static


def _read_pooling(folder: Path) -> tuple[str, bool, int]:
    path = folder / CONFIG
    config = read_object(path)
    modes = config.get("pooling_mode")
    if modes is None:  # a switch for each, before version 6 of sentence-transformers
        switches = [key for key, on in config.items() if "pooling_mode_" in key and on is True]
        modes = [key.split("_")[2] for key in switches]
    modes = [modes] if isinstance(modes, str) else modes
    width = config.get("embedding_dimension") or config["word_embedding_dimension"]
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise CheckpointError(f"{path}: pooling {modes!r}: supported: {', '.join(POOLINGS)}")
    return modes[0], bool(config.get("include_prompt", True)), int(width)


def _choose_prompt(about: Mapping[str, Any], name: SentenceModelName) -> str:
    prompts = about.get("prompts") or {}
    chosen = about.get("default_prompt_name") if name.prompt is None else name.prompt
    if chosen and chosen not in prompts:
        having = ", ".join(sorted(prompts)) or "none"
        raise CheckpointError(f"{name.folder}: has no prompt {chosen!r}; it has: {having}")
    return str(prompts[chosen]) if chosen else ""


def _token_limit(directory: Path, config: Mapping[str, Any]) -> int:
    """Return the most tokens of a block, which is what the model reads."""
    offset = int(config.get("pad_token_id") or 0) + 1
    shift = offset if config.get("model_type") in _OFFSET_POSITIONS else 0
    limits = [
        _read_optional(directory / "sentence_bert_config.json").get("max_seq_length"),
        _read_optional(directory / "tokenizer_config.json").get("model_max_length"),
        config.get("max_position_embeddings", LONGEST_BLOCK + shift) - shift,
    ]
    limit = min(LONGEST_BLOCK, *(limit for limit in limits if limit))
    if limit < SHORTEST_BLOCK:
        raise CheckpointError(f"{directory}: reads {limit} tokens, under {SHORTEST_BLOCK}")
    return int(limit)


def read_table(directory: Path) -> Float32:
    """Return the vectors [V, width] of the tokens of a StaticEmbedding.

    Raises:
        CheckpointError: the weights are none.
    """
    from safetensors.numpy import load_file  # of the extra

    path = directory / "model.safetensors"
    try:
        weights = load_file(path)
    except Exception as error:  # of the library, for each way that a file can be wrong
        raise CheckpointError(f"{path}: does not load: {error}") from error
    table = weights.get("embedding.weight", weights.get("embeddings"))
    if table is None or table.ndim != 2:
        raise CheckpointError(f"{path}: has no table of vectors for tokens")
    if "mapping" in weights:  # of model2vec: tokens share vectors, and have weights
        table = table[weights["mapping"]]
    table = table.astype(np.float32)
    return table * weights["weights"][:, None].astype(np.float32) if "weights" in weights else table


def _find_weights(directory: Path, *, static: bool) -> tuple[dict[str, str], list[str]]:
    """Return the graphs by precision, and the files that hold weights in use."""
    graphs: dict[str, str] = {}
    for precision, patterns in _GRAPHS.items():
        found = [path for name in patterns for path in sorted(directory.glob(f"onnx/{name}"))]
        graphs |= {precision: f"onnx/{found[0].name}"} if found else {}
    data = [f"{graph}_data" for graph in graphs.values()]
    weights = [*graphs.values(), *(name for name in data if (directory / name).exists())]
    weights = weights or sorted(path.name for path in directory.glob("model*.safetensors"))
    if not weights:
        pickled = any(directory.glob("*.bin"))
        reason = "only as pickle, which runs code when it is read" if pickled else "missing"
        raise CheckpointError(f"{directory}: weights are {reason}: save them as safetensors")
    size = sum((directory / name).stat().st_size for name in weights) / 2**30
    if size > LARGEST_BYTES / 2**30:
        raise CheckpointError(
            f"{directory}: weights of {size:.1f} GiB, over the limit of {LARGEST_BYTES // 2**30}"
        )
    for module in () if graphs else ("safetensors",) if static else ("torch", "transformers"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise CheckpointError(
                f"{directory}: has no onnx/model.onnx, and {module} is missing, which reads its "
                "weights: pip install 'longmatch[sentence-models]'"
            ) from error
    return graphs, weights


def _surrounding_tokens(
    path: Path, prompt: str
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the special tokens before a text, those of the prompt, and the special ones after."""
    if not path.exists():
        raise CheckpointError(f"{path} is missing: save the tokenizer with the model")
    tokenizer = load_tokenizer(read_file(path), path)
    ids, special = tokenizer.encode("a").ids, tokenizer.encode("a").special_tokens_mask
    if 0 not in special:
        raise CheckpointError(f"{path}: the text 'a' has no token")
    tokenizer.encode_special_tokens = False  # in a prompt they are what they are
    prompted = tokenizer.encode(prompt.rstrip(" "), add_special_tokens=False).ids
    start, end = special.index(0), len(ids) - special[::-1].index(0)
    return tuple(ids[:start]), tuple(prompted), tuple(ids[end:])


def _read_optional(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}
