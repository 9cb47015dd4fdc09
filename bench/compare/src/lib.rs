//! The same workloads on other engines.
