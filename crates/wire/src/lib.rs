//! PostgreSQL's protocol, nothing else.
