"""Commands, options and settings that were removed, and what replaces each."""

from collections.abc import Mapping

FORMER_COMMANDS: Mapping[str, str] = {
    "train": "is now longmatch lab train",
    "create-checkpoint": "is now longmatch lab create-checkpoint",
    "export": "is now longmatch lab export",
    "fit-calibration": "is now longmatch lab fit-calibration",
    "dataset": "is now longmatch lab dataset",
    "make-corpus": "is gone: longmatch lab train reads a folder of a corpus, docs/training.md",
    "train-reranker": "is now longmatch lab train, with a recipe of a reranker",
    "create-reranker": "is now longmatch lab create-checkpoint, with a recipe of a reranker",
    "watch": "is now longmatch index FOLDER --watch",
    "embed": "is now longmatch lab embed",
    "calibrate": "is gone: longmatch index and a server measure the scores of random pairs",
    "bench": "is now python -m benchmarks.models, in the repository",
    "migrate": "is gone: export the documents with GET /documents and index them again",
}

# Of every command but those of `longmatch lab`.
FORMER_OPTIONS: Mapping[str, str] = {
    "--checkpoint": "is now --encoder",
    "--precision": "is now LONGMATCH_PRECISION",
    "--provider": "is now LONGMATCH_PROVIDERS",
    "--threads": "is now LONGMATCH_THREADS",
}

_SHARED = "documents are stored in the data directory, or in LONGMATCH_DATABASE"
_SEARCHED = "vectors and words are searched in the process, or by LONGMATCH_ENGINE"
_FIXED = (
    "MAX_UNFINISHED_JOBS",
    "MAX_UNFINISHED_JOBS_PER_CLIENT",
    "MAX_UPLOAD_RATIO",
    "MAX_IDEMPOTENCY_KEYS",
    "UPLOAD_SECONDS",
    "DOWNLOAD_SECONDS",
    "DOWNLOAD_BYTES_PER_SECOND",
    "MAX_UNSENT_BYTES",
    "MAX_DOCUMENTS_PER_REQUEST",
    "MAX_QUERIES_PER_REQUEST",
    "MAX_EMBEDDING_INPUTS",
    "MAX_EXPLAINED_MATCHES",
    "MAX_TOP_K",
    "MAX_RERANK_CANDIDATES",
    "RECALL_SAMPLE_SHARE",
    "MAX_STANDING_EVENTS",
    "WEBHOOK_SECONDS",
    "WEBHOOK_ATTEMPTS",
)
# By name without the prefix.
FORMER_SETTINGS: Mapping[str, str] = {
    "CHECKPOINT": "LONGMATCH_ENCODER names the encoder",
    "STATE": "LONGMATCH_DATABASE names the database",
    "ENGINE_CACHE": "TensorRT is not used; LONGMATCH_PROVIDERS=cuda runs on a GPU",
    "INDEX_GPU": "a GPU is used where FAISS has one: install faiss-cpu for none",
    "TLS_KEY_PASSWORD": "decrypt the key: openssl pkey -in KEY -out PLAIN",
    "OPEN_METRICS": "LONGMATCH_OPEN_INFORMATION opens /metrics and /docs",
    "OPEN_DOCS": "LONGMATCH_OPEN_INFORMATION opens /docs and /metrics",
    "MAX_WAITING_UPLOAD_BYTES": "LONGMATCH_DISK_RESERVE_BYTES bounds what uploads take",
    "MAX_EVENT_LISTENERS": "events are read in pages, or sent to webhooks",
    **dict.fromkeys(["STORE", "STORE_SCHEMA", "STORE_SECONDS", "JOB_LEASE_SECONDS"], _SHARED),
    **dict.fromkeys(["WORDS", "VECTORS", "VECTORS_SECONDS", "VECTORS_LOAD_SECONDS"], _SEARCHED),
    "MAX_FEEDBACK_BYTES": "LONGMATCH_MAX_FEEDBACK limits the number of verdicts",
    "MAX_STANDING_QUERY_BYTES": "LONGMATCH_MAX_STANDING_QUERIES limits the number of queries",
    "DEFAULT_TOP_K": "a request gives `top_k`",
    "RERANK_SECONDS": "a request gives `rerank.budget_ms`",
    **dict.fromkeys(_FIXED, "it is fixed"),
}
