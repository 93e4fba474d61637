"""One search for HTTP and the command line: modes, fusion, collapse, and what a score is worth."""
