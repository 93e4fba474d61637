"""What learns from feedback, and what is tested by it before it is served."""
