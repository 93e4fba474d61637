"""POST /text: the text of a file."""
