"""MinHash signatures, confirmed links, and families of near-duplicates."""
