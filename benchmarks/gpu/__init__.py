"""What takes a GPU: it runs in parts, on a machine that is lent for minutes."""
