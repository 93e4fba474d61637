"""What a running service tells of its requests: logs, and the stages of traces."""
