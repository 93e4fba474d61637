"""The jobs behind `longmatch train` and `longmatch train-reranker`."""
