//! Blocks, version chains, tables, indexes, Arrow views.
