"""Documents that benchmarks make up."""
