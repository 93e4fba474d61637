"""How much work is let in: admission, rate limits, and the Redis client they share."""
