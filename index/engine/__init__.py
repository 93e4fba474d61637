"""The engine: the searchable copy of the documents behind one port, and the local engine."""
