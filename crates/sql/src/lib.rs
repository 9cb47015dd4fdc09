//! Parse, bind, DDL, functions, pg_catalog.
