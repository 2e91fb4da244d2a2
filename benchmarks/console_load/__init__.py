"""What the benchmarks of the console share: a console of its own process, and visitors without a browser."""
