"""Where `longmatch index` encodes: in its own process, or on a Ray cluster."""
