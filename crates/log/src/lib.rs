//! The redo log: record format, group commit, segments, reader.
