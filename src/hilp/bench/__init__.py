"""Benchmarks: speed of this machine's hilp. Results that are kept live in the repository's benchmarks/ folder."""
