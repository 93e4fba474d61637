"""The term channel: the words of a document as a vector."""
