"""Standing queries: their tables, the thread that scores new documents, and webhooks."""
