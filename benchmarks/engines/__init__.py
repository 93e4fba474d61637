"""The engines that can hold the vectors, beside each other."""
