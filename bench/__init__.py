"""Benchmarks against other job engines: `python bench/compare.py` runs them all."""
