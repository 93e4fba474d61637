"""POST /match: read the queries, retrieve, rerank, explain."""
