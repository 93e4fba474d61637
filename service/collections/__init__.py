"""Opening, creating and removing collections."""
