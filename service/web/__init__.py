"""Pages for people; the rest of the service is for programs."""
