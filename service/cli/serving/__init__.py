"""Commands of a server, each in a module of its own: `serve` imports little before it begins."""
