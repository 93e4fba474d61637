"""What a running service reports on its requests: logs, and the stages of traces."""
