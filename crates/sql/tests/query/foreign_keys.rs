//! Foreign keys: every action on delete and update, with and without an index of the child,
//! self-references and cycles.

use crate::database::Database;

/// Runs `test` with a child that has an index on its key and one without.
fn with_and_without_index(script: &str, test: impl Fn(&Database)) {
    test(&Database::with(script));
    let db = Database::with(script);
    db.run("CREATE INDEX c_p ON c (p)");
    test(&db);
}

fn family(actions: &str) -> String {
    format!(
        "CREATE TABLE p (k int PRIMARY KEY, v int);
         CREATE TABLE c (k int PRIMARY KEY, p int DEFAULT 9 REFERENCES p {actions});
         INSERT INTO p VALUES (1, 0), (2, 0), (9, 0);
         INSERT INTO c VALUES (10, 1), (11, 1), (20, 2), (30, NULL)"
    )
}

#[test]
fn a_row_points_only_at_what_is_there() {
    with_and_without_index(&family(""), |db| {
        assert_eq!(
            db.error("INSERT INTO c VALUES (40, 4)"),
            "23503 insert or update on table \"c\" violates foreign key constraint \"c_p_fkey\" / \
             Key (p)=(4) is not present in table \"p\"."
        );
        assert!(db.error("UPDATE c SET p = 4 WHERE k = 10").starts_with("23503"));
        assert!(db.error("INSERT INTO c SELECT 40, 4").starts_with("23503"));
        assert_eq!(db.run("UPDATE c SET p = 2 WHERE k = 10").count, 1);
        assert_eq!(db.run("INSERT INTO c VALUES (40, NULL)").count, 1);
    });
}

#[test]
fn referenced_rows_are_kept_by_default() {
    for actions in ["", "ON DELETE NO ACTION ON UPDATE NO ACTION", "ON DELETE RESTRICT ON UPDATE RESTRICT"] {
        with_and_without_index(&family(actions), |db| {
            assert_eq!(
                db.error("DELETE FROM p WHERE k = 1"),
                "23503 update or delete on table \"p\" violates foreign key constraint \"c_p_fkey\" on table \"c\" / \
                 Key (k)=(1) is still referenced from table \"c\"."
            );
            assert!(db.error("UPDATE p SET k = 5 WHERE k = 2").starts_with("23503"));
            assert_eq!(db.run("UPDATE p SET v = 1, k = k WHERE k = 2").count, 1);
            assert_eq!(db.run("DELETE FROM p WHERE k = 9").count, 1);
            db.run("DELETE FROM c WHERE p = 1");
            assert_eq!(db.run("DELETE FROM p WHERE k = 1").count, 1);
        });
    }
}

#[test]
fn cascades_take_the_pointing_rows_along() {
    with_and_without_index(&family("ON DELETE CASCADE ON UPDATE CASCADE"), |db| {
        assert_eq!(db.run("UPDATE p SET k = 5 WHERE k = 1").count, 1, "cascaded rows do not count");
        assert_eq!(db.rows("SELECT k, p FROM c ORDER BY k"), "10|5, 11|5, 20|2, 30|null");
        assert_eq!(db.run("DELETE FROM p WHERE k IN (5, 2)").count, 2);
        assert_eq!(db.rows("SELECT k, p FROM c ORDER BY k"), "30|null");
    });
}

#[test]
fn keys_are_set_to_null_or_their_default() {
    with_and_without_index(&family("ON DELETE SET NULL ON UPDATE SET NULL"), |db| {
        db.run("DELETE FROM p WHERE k = 1");
        db.run("UPDATE p SET k = 6 WHERE k = 2");
        assert_eq!(db.rows("SELECT k, p FROM c ORDER BY k"), "10|null, 11|null, 20|null, 30|null");
    });
    with_and_without_index(&family("ON DELETE SET DEFAULT ON UPDATE SET DEFAULT"), |db| {
        db.run("DELETE FROM p WHERE k = 1");
        db.run("UPDATE p SET k = 6 WHERE k = 2");
        assert_eq!(db.rows("SELECT k, p FROM c ORDER BY k"), "10|9, 11|9, 20|9, 30|null");
        assert!(db.error("DELETE FROM p WHERE k = 9").starts_with("23503"), "the default is gone as well");
    });
}

#[test]
fn no_action_looks_at_what_the_statement_leaves() {
    let db = Database::with(&family(""));
    // Key 1 moves away from its row, and another row gets it.
    assert_eq!(db.run("UPDATE p SET k = CASE k WHEN 1 THEN 7 ELSE k END WHERE k = 9").count, 1);
    let db = Database::with(
        "CREATE TABLE p (k int UNIQUE, v int); CREATE TABLE c (p int REFERENCES p (k));
         INSERT INTO p VALUES (1, 0), (-1, 0); INSERT INTO c VALUES (1), (-1)",
    );
    // Rows that move onto each other's keys succeed only if the first to move finds its key free: use a free key.
    assert!(db.error("UPDATE p SET k = 2 * k").starts_with("23503"));
}

#[test]
fn a_table_may_point_at_itself() {
    let db = Database::with(
        "CREATE TABLE t (k int PRIMARY KEY, up int REFERENCES t ON DELETE CASCADE);
         INSERT INTO t VALUES (3, 2), (2, 1), (1, NULL), (5, 5)",
    );
    assert!(db.error("INSERT INTO t VALUES (7, 8)").starts_with("23503"));
    assert_eq!(db.run("DELETE FROM t WHERE k = 1").count, 1);
    assert_eq!(db.rows("SELECT k FROM t"), "5");
    assert_eq!(db.run("DELETE FROM t WHERE k = 5").count, 1);
    let db = Database::with(
        "CREATE TABLE t (k int PRIMARY KEY, up int REFERENCES t);
         INSERT INTO t VALUES (1, 2), (2, 1)",
    );
    assert!(db.error("DELETE FROM t WHERE k = 1").starts_with("23503"));
    assert_eq!(db.run("DELETE FROM t").count, 2, "both go at once");
}

#[test]
fn cascades_go_through_several_tables_and_come_back() {
    let db = Database::with(
        "CREATE TABLE a (k int PRIMARY KEY);
         CREATE TABLE b (k int PRIMARY KEY, a int REFERENCES a ON DELETE CASCADE ON UPDATE CASCADE);
         CREATE TABLE c (k int PRIMARY KEY, b int REFERENCES b ON DELETE SET NULL, a int REFERENCES a ON DELETE CASCADE);
         INSERT INTO a VALUES (1), (2);
         INSERT INTO b VALUES (10, 1), (20, 2);
         INSERT INTO c VALUES (100, 10, 1), (200, 10, 2), (300, 20, 2)",
    );
    assert_eq!(db.run("DELETE FROM a WHERE k = 1").count, 1);
    assert_eq!(db.rows("SELECT k, a FROM b"), "20|2");
    assert_eq!(db.rows("SELECT k, b, a FROM c ORDER BY k"), "200|null|2, 300|20|2");
}

#[test]
fn keys_of_several_columns_and_types_meet() {
    let db = Database::with(
        "CREATE TABLE p (x bigint, y text, PRIMARY KEY (y, x));
         CREATE TABLE c (y varchar(5), x int, FOREIGN KEY (x, y) REFERENCES p (x, y) ON UPDATE CASCADE);
         INSERT INTO p VALUES (1, 'a'), (2, 'b'), (5000000000, 'long text')",
    );
    assert_eq!(db.run("INSERT INTO c VALUES ('a', 1), ('b', NULL), (NULL, 7)").count, 3);
    assert_eq!(
        db.error("INSERT INTO c VALUES ('b', 1)"),
        "23503 insert or update on table \"c\" violates foreign key constraint \"c_x_y_fkey\" / \
         Key (x, y)=(1, b) is not present in table \"p\"."
    );
    assert_eq!(db.run("UPDATE p SET x = 3 WHERE y = 'a'").count, 1);
    assert_eq!(db.rows("SELECT x FROM c WHERE y = 'a'"), "3");
    assert_eq!(db.run("DELETE FROM p WHERE y = 'long text'").count, 1, "no child can hold the key");
    assert!(db.error("DELETE FROM p WHERE y = 'a'").starts_with("23503"));
}
