//! Aggregates: a line has an array of values for each argument, which are the rows of one group.
