"""Documents encoded by the machines of a Ray cluster; reading and writing stay in one process."""
