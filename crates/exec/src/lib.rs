//! Scans, compiled short statements, DML.
