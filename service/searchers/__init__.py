"""Search processes: children of the server that search, each with an interpreter of its own."""
