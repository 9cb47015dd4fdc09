//! Workloads and benchmarks of our own engine.
