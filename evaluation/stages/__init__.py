"""Systems of a second stage: the first candidates of another system are scored again."""
