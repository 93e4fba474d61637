"""How much work is accepted: admission, rate limits, and the Redis client."""
