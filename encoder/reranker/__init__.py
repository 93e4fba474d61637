"""The cross-encoder at serving time: choose sentences, pair them, score the pair."""
