//! Rows of bound plans, beside those of PostgreSQL.
