"""The jobs behind `longmatch lab train`, of encoders and of rerankers."""
