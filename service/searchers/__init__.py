"""Search processes: children of the server that search beside it, each with an interpreter."""
