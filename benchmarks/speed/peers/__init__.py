"""Encoders and engines of other projects, each in a process with the packages that it needs."""
