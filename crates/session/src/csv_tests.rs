//! What can be said of a CSV file: to `read_csv`, which tells the rest from the file, and to COPY.

use crate::file_tests::{Folder, connection, rows};
use firn_base::SqlState;

#[test]
fn only_tables_of_the_transaction_are_loaded_frozen() {
    let folder = Folder::new(&[("n.csv", "1\n2\n")]);
    let mut connection = connection();
    connection.execute("CREATE TABLE t (n integer PRIMARY KEY); INSERT INTO t VALUES (9)").unwrap();
    let copy = folder.sql("COPY t FROM '@/n.csv' (FORMAT csv, FREEZE)");
    for begin in ["", "BEGIN;", "BEGIN; DELETE FROM t;"] {
        let error = connection.execute(&format!("{begin} {copy}")).unwrap_err();
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{begin}");
        assert!(error.message().starts_with("cannot perform COPY FREEZE because the table was not created"));
        connection.execute("ROLLBACK").unwrap();
    }
    connection.execute(&copy.replace("FREEZE", "FREEZE off")).unwrap();
    for begin in ["TRUNCATE t", "DROP TABLE t; CREATE TABLE t (n integer PRIMARY KEY)"] {
        connection.execute(&format!("BEGIN; {begin}; {copy}; COMMIT")).unwrap();
        assert_eq!(rows(&mut connection, "SELECT n FROM t ORDER BY n"), ["Integer(1)", "Integer(2)"]);
    }
}
