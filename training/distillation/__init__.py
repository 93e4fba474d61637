"""A sentence level of fewer layers that learns the block vectors of the one it was made of."""
