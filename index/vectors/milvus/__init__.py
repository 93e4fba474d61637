"""Vectors kept in a Milvus: a server, or Milvus Lite in this process; see docs/milvus.md."""
