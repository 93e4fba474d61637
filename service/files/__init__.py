"""Files that clients send, to be read as text."""
