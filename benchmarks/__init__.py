"""One script per question; see README.md."""
