"""Published data sets, as they are distributed, made into corpora: `longmatch lab dataset`."""
