"""API keys: who may read, write and administer."""
