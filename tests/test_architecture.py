"""The rules of docs/architecture.md: which way imports run, and what may be imported where.

The tables below are the rules. A new module of a package's root, or a new folder, gets a place in
ORDER; a module that code outside of its folder needs gets one in FACES.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.tools.imports import SourceTree, belongs

ROOT = Path(__file__).parents[1]
PRODUCT = ("encoder", "index", "evaluation", "training", "service")
EVERYTHING = (*PRODUCT, "benchmarks")

# What each package may import besides itself; the longest name that fits counts.
MAY_IMPORT = {
    "encoder": (),
    "index": ("encoder",),
    "evaluation": ("encoder", "index"),
    "training": ("encoder", "index", "evaluation"),
    "service": ("encoder", "index"),
    "service.cli": PRODUCT,
    "benchmarks": PRODUCT,
}
NOT_IMPORTED = ("service.cli",)  # by any other package

# Modules and folders of a package, from those that the others build on: one imports those of the
# lines above it, never one of its own line.
ORDER: Mapping[str, Sequence[str]] = {
    "encoder": (
        "arrays atomic_files blocks errors sentences",
        "checkpoint",
        "device",
        "alignment block_archive calibration golden onnx_session tokenizer",
        "comparison recurrent terms",
        "selection",
        "adapter reranker",
        "onnx_encoder",
        "models",
        "export",
    ),
    "index": (
        "errors extras id_set",
        "document sqlite",
        "corpus progress",
        "alignment lexical",
        "near_duplicates",
        "store",
        "postgres vectors",
        "replica",
        "directory",
        "adapt build search",
        "distributed doctor embed reencode",
        "migration",
    ),
    "evaluation": (
        "calibration_error encoded_corpus judgements significance systems",
        "block_baselines markdown mentions metrics plots second_stage",
        "baselines quality_gate report",
        "experiment",
        "fitting",
    ),
    "training": (
        "batch errors progress sources",
        "datasets losses recipe",
        "objectives run_files",
        "distillation reordering",
        "data loop",
        "collate term_channel",
        "trained_checkpoint",
        "jobs",
        "comparison",
    ),
    "service": (
        "configuration errors",
        "metrics settings threads web",
        "telemetry",
        "background feedback jobs keys limits",
        "searchers",
        "files standing workers",
        "engine",
        "documents encode",
        "embeddings indexing matching",
        "bulk_upload",
        "collections",
        "startup",
        "api",
        "http_protocol",
        "process",
    ),
    "service.api": (
        "deps http schemas",
        "openapi",
        "compare documents embeddings feedback files index jobs ops page pairs",
        "collections match",
        "similar standing",
        "app",
    ),
}

# What code outside of a folder may import of it. Folders inside of it may use all.
FACES: Mapping[str, str] = {
    "encoder": (
        "adapter arrays atomic_files block_archive blocks calibration checkpoint errors golden "
        "onnx_encoder sentences tokenizer"
    ),
    "encoder.alignment": "checkpoint_space contributions scoring space",
    "encoder.comparison": "alignment compare result section_scores sections text words",
    "encoder.device": "bound_graph packing providers",
    "encoder.export": "create export export_reranker quality recipe_file",
    "encoder.models": "architecture registry weights",
    "encoder.models.baselines": "arc_i dssm han",
    "encoder.recurrent": "document_reading",
    "encoder.reranker": (
        "checkpoint golden onnx_reranker pair_tokenizer score_fusion sentence_ranking"
    ),
    "encoder.selection": "block_selection reading_share",
    "encoder.terms": (
        "feature_hashing segmentation stop_words term_channel term_table title_matcher"
    ),
    "evaluation": (
        "baselines block_baselines encoded_corpus experiment judgements markdown metrics plots "
        "quality_gate report significance systems"
    ),
    "evaluation.fitting": "calibration feedback feedback_calibration fusion judged_queries",
    "evaluation.mentions": "left_out masking",
    "evaluation.second_stage": "alignment reranking",
    "index": "adapt build document embed errors extras id_set progress reencode",
    "index.alignment": "alignment_index refresh tables",
    "index.corpus": "demo file_reader json_lines reader remote sql",
    "index.corpus.formats": "content files html parquet titles",
    "index.directory": (
        "backup backup_archive beside_writer collections content_swap data_directory file_digest "
        "local_copy"
    ),
    "index.distributed": "cluster encoder_pool encoding_actor",
    "index.doctor": "copy_checks examine findings rebuild repair",
    "index.lexical": ("frequencies lexical_index scoring segment_files tables terms title_refresh"),
    "index.near_duplicates": "families signatures tables",
    "index.postgres": (
        "address connections copies document_store history portable schema statements"
    ),
    "index.replica": "copied_store copy_mark follower opening whole_rows",
    "index.search": (
        "alignment calibrator corpus_calibration corpus_fusion fusion pairs records "
        "score_distribution search spare_core"
    ),
    "index.sqlite": "block_vectors connections database failures free_space task_state",
    "index.store": (
        "checksums damage document_store filter_sql filters listing metadata ports records rows "
        "schema statements"
    ),
    "index.vectors": (
        "backends bulk drift exact_index lists live_index recall snapshot vector_index"
    ),
    "index.vectors.faiss": "faiss_index gpu",
    "index.vectors.milvus": "connection engine word_collection word_follower word_index",
    "service.api": "app",
    "service.api.feedback": "routes",
    "service.api.files": "routes",
    "service.api.http": (
        "access admission bodies collections errors hosts idempotency middleware negotiation "
        "paths problems"
    ),
    "service.api.openapi": "document responses router",
    "service.api.schemas": (
        "collections common compare documents embeddings fields filter jobs match matches ops "
        "paging standing"
    ),
    "service.api.standing": "events queries",
    "service.background": "maintenance recall_monitor",
    "service.collections": "changes opening",
    "service.configuration": "access device names standing store vectors",
    "service.feedback": "doctor store verdict",
    "service.files": "reading",
    "service.jobs": "doctor idempotency job runner uploads",
    "service.keys": "api_key key_file",
    "service.limits": "admission rate_limit redis_client",
    "service.matching": (
        "compare examples feedback listening match pairs queries rerank retrieve standing"
    ),
    "service.searchers": "pool process task",
    "service.standing": "doctor query runner signature targets",
    "service.telemetry": "logs stages",
    "service.web": "report search_page",
    "service.workers": (
        "block_cache encode_cache opening_encoder redis_block_cache rerank_pool reservation "
        "scheduler work"
    ),
    "training": "errors progress recipe",
    "training.comparison": "compare job plan runs",
    "training.data": ("corpus files pair_files rerank_pairs sampling"),
    "training.datasets": "convert",
    "training.jobs": "fit_search output train_encoder train_reranker",
    "training.sources": "corpus_folder feedback_corpus linked_corpus make_corpus",
}

# The only places that may import these libraries.
OWNERS = {
    "torch": ("encoder.models", "encoder.export", "training"),
    "onnx": ("encoder.export",),
    "onnxscript": ("encoder.export",),
    "safetensors": ("encoder.models", "encoder.export", "training"),
    "onnxruntime": ("encoder.device", "encoder.onnx_session", "encoder.export"),
    "faiss": ("index.vectors.faiss",),
    "fsspec": ("index.corpus.remote",),
    "grpc": ("index.vectors.milvus",),
    "milvus_lite": ("index.vectors.milvus",),
    "psycopg": ("index.corpus.sql", "index.postgres"),
    "pymilvus": ("index.vectors.milvus",),
    "ray": ("index.distributed",),
    "fastapi": ("service.api",),
    "starlette": ("service.api",),
}
TORCH_HALF = ("encoder.models", "encoder.export", "training")
TORCH_FREE = ("encoder.export.quality", "encoder.export.recipe_file")  # of these
# What may be imported in a function, so that a command that does without starts sooner.
MAY_BE_LATE = (*TORCH_HALF, "evaluation", "service.process")

MOST_MODULES = 14  # of a folder
MOST_LINES = 400  # of a file


def package_of(module: str) -> str:
    """Return the row of MAY_IMPORT that a module belongs to."""
    return max((name for name in MAY_IMPORT if belongs(module, [name])), key=len)


def against_packages(tree: SourceTree) -> Iterator[str]:
    for one in tree.inner:
        package = package_of(one.importer)
        allowed = (package, *MAY_IMPORT[package])
        hidden = belongs(one.imported, NOT_IMPORTED) and package not in NOT_IMPORTED
        if hidden or not belongs(one.imported, allowed):
            yield str(one)


def against_order(tree: SourceTree, order: Mapping[str, Sequence[str]] = ORDER) -> Iterator[str]:
    for package, lines in order.items():
        rank = {name: number for number, line in enumerate(lines) for name in line.split()}
        depth = package.count(".") + 1
        parts = {
            module: module.split(".")[depth]
            for module in tree.modules
            if module.startswith(f"{package}.") and package_of(module) == package_of(package)
        }
        yield from (f"{package}.{name} has no place" for name in {*parts.values()} - rank.keys())
        yield from (f"{package}.{name} is gone" for name in rank.keys() - {*parts.values()})
        for one in tree.inner:
            if one.importer in parts and one.imported in parts:
                upper, lower = parts[one.importer], parts[one.imported]
                if upper != lower and rank.get(upper, 0) <= rank.get(lower, 0):
                    yield str(one)


def against_faces(tree: SourceTree, faces: Mapping[str, str] = FACES) -> Iterator[str]:
    listed = {f"{room}.{name}" for room, names in faces.items() for name in names.split()}
    used = set()
    for one in tree.inner:
        room = tree.room_of(one.imported)
        if belongs(tree.room_of(one.importer), [room]):
            continue
        used.add(one.imported)
        if one.imported not in listed:
            yield f"{one}, which is private to {room}"
    yield from (f"{module} is listed, and no other folder imports it" for module in listed - used)


def against_owners(tree: SourceTree) -> Iterator[str]:
    for one in tree.imports:
        owners = OWNERS.get(one.imported.split(".")[0])
        if owners is not None and not belongs(one.importer, owners):
            yield str(one)


def against_serving(tree: SourceTree) -> Iterator[str]:
    """What the online service and the offline jobs import that only training needs."""
    for one in tree.inner:
        package = package_of(one.importer)
        serving = package in ("encoder", "index", "service")
        at_start = package == "service.cli" and not one.late
        if (serving and not belongs(one.importer, TORCH_HALF)) or at_start:
            forbidden = TORCH_HALF if serving else ("encoder.models", "encoder.export")
            if belongs(one.imported, forbidden) and not belongs(one.imported, TORCH_FREE):
                yield str(one)


def against_late_imports(tree: SourceTree) -> Iterator[str]:
    for one in tree.inner:
        if one.late and not belongs(one.imported, MAY_BE_LATE):
            yield f"{one} late"


def against_sizes(tree: SourceTree) -> Iterator[str]:
    rooms: dict[str, int] = {}
    for module, path in tree.modules.items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MOST_LINES:
            yield f"{module} has {lines} lines"
        room = str(path.parent.relative_to(tree.root))
        rooms[room] = rooms.get(room, 0) + 1
    crowded = {room: count for room, count in rooms.items() if count > MOST_MODULES}
    yield from (f"{room} has {count} modules" for room, count in crowded.items())


def assert_none(offenders: Iterable[str]) -> None:
    listed = sorted(offenders)
    assert not listed, "\n".join(listed)


@pytest.fixture(scope="module")
def product() -> SourceTree:
    return SourceTree(ROOT, PRODUCT)


@pytest.fixture(scope="module")
def everything() -> SourceTree:
    return SourceTree(ROOT, EVERYTHING)


def test_packages_are_imported_one_way(everything: SourceTree) -> None:
    assert_none(against_packages(everything))


def test_folders_and_modules_are_imported_one_way(product: SourceTree) -> None:
    assert_none(against_order(product))


def test_no_modules_import_one_another(everything: SourceTree) -> None:
    assert everything.cycle() == []


def test_no_import_is_late_without_need(product: SourceTree) -> None:
    assert_none(against_late_imports(product))


def test_folders_are_used_by_their_faces(product: SourceTree) -> None:
    assert_none(against_faces(product))


def test_libraries_are_imported_where_they_belong(product: SourceTree) -> None:
    assert_none(against_owners(product))


def test_nothing_that_serves_imports_the_training_half(product: SourceTree) -> None:
    assert_none(against_serving(product))


def test_folders_and_files_are_small(everything: SourceTree) -> None:
    assert_none(against_sizes(everything))
    assert_none(against_sizes(SourceTree(ROOT / "clients/python", ["longmatch"])))


@pytest.mark.parametrize("module", ["service.api.app", "service.cli.main"])
def test_serving_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
