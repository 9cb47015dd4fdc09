//! Begin, commit, roll back, collect, recover; the catalog.
