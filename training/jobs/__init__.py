"""The jobs behind `longmatch lab train` and `longmatch lab train`."""
