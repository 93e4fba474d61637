"""Systems whose best candidates are scored again: aligned, or reranked."""
