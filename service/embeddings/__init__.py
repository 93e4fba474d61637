"""Document vectors in the shape of OpenAI's API."""
