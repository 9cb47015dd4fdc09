//! The fields of common errors and notices, beside those that PostgreSQL 15 sends.

use crate::raw::*;
use firn_session::Database;
use firn_wire::{Server, WireConfig};

const SETUP: &str = "
    CREATE TABLE parent (id integer PRIMARY KEY);
    CREATE TABLE t (
        a integer PRIMARY KEY,
        b text NOT NULL,
        c integer CONSTRAINT positive CHECK (c > 0) REFERENCES parent (id)
    );
    CREATE TABLE short (v varchar(3));
    INSERT INTO parent VALUES (1);
    INSERT INTO t VALUES (1, 'x', 1)";

/// The fields as `C42P01 P15`: code and value of each of the given codes, in their order; a missing field
/// is left out.
fn fields(body: &[u8], codes: &str) -> String {
    let each = codes.bytes().filter_map(|code| Some(format!("{}{}", char::from(code), field(body, code)?)));
    each.collect::<Vec<_>>().join(" | ")
}

fn error_of(raw: &mut Raw, bytes: &[u8]) -> Vec<u8> {
    raw.send(bytes);
    let received = raw.until('Z');
    let error = received.iter().find(|(tag, _)| *tag == 'E');
    error.unwrap_or_else(|| panic!("no error but {}", summary(&received))).1.clone()
}

#[test]
fn common_errors_have_the_fields_that_postgresql_gives_them() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query(SETUP));
    for (sql, expected) in [
        ("SELECT * FROM missing", "SERROR | VERROR | C42P01 | Mrelation \"missing\" does not exist | P15"),
        ("SELECT nope FROM t", "SERROR | VERROR | C42703 | Mcolumn \"nope\" does not exist | P8"),
        ("SELEC 1", "SERROR | VERROR | C42601 | Msyntax error at or near \"SELEC\" | P1"),
        (
            "INSERT INTO t VALUES (1, 'y', 1)",
            "SERROR | VERROR | C23505 | Mduplicate key value violates unique constraint \"t_pkey\" | \
             DKey (a)=(1) already exists. | spublic | tt | nt_pkey",
        ),
        (
            "INSERT INTO t VALUES (2, NULL, 1)",
            "SERROR | VERROR | C23502 | \
             Mnull value in column \"b\" of relation \"t\" violates not-null constraint | \
             DFailing row contains (2, null, 1). | spublic | tt | cb",
        ),
        (
            "INSERT INTO t VALUES (2, 'y', 0)",
            "SERROR | VERROR | C23514 | Mnew row for relation \"t\" violates check constraint \"positive\" | \
             DFailing row contains (2, y, 0). | spublic | tt | npositive",
        ),
        (
            "INSERT INTO t VALUES (2, 'y', 9)",
            "SERROR | VERROR | C23503 | \
             Minsert or update on table \"t\" violates foreign key constraint \"t_c_fkey\" | \
             DKey (c)=(9) is not present in table \"parent\". | spublic | tt | nt_c_fkey",
        ),
        (
            "DELETE FROM parent",
            "SERROR | VERROR | C23503 | Mupdate or delete on table \"parent\" violates foreign key \
             constraint \"t_c_fkey\" on table \"t\" | DKey (id)=(1) is still referenced from table \"t\". | \
             spublic | tt | nt_c_fkey",
        ),
        ("SELECT 1 / (a - 1) FROM t", "SERROR | VERROR | C22012 | Mdivision by zero"),
        (
            "SELECT b::integer FROM t",
            "SERROR | VERROR | C22P02 | Minvalid input syntax for type integer: \"x\"",
        ),
        ("SELECT 'x'::int", "SERROR | VERROR | C22P02 | Minvalid input syntax for type integer: \"x\" | P8"),
        ("SELECT 1::nix", "SERROR | VERROR | C42704 | Mtype \"nix\" does not exist | P11"),
        ("SELECT nix(1)", "SERROR | VERROR | C42883 | Mfunction nix(integer) does not exist | P8"),
        (
            "SELECT lower(1, 2)",
            "SERROR | VERROR | C42883 | Mfunction lower(integer, integer) does not exist | P8",
        ),
        ("SELECT 1 + true", "SERROR | VERROR | C42883 | Moperator does not exist: integer + boolean | P10"),
        ("SELECT FROM WHERE", "SERROR | VERROR | C42601 | Msyntax error at or near \"WHERE\" | P13"),
        (
            "INSERT INTO short VALUES ('long')",
            "SERROR | VERROR | C22001 | Mvalue too long for type character varying(3)",
        ),
        (
            "INSERT INTO t (a, nix) VALUES (1, 2)",
            "SERROR | VERROR | C42703 | Mcolumn \"nix\" of relation \"t\" does not exist | P19",
        ),
    ] {
        assert_eq!(fields(&error_of(&mut raw, &query(sql)), "SVCMDPWstcn"), expected, "{sql}");
    }
}

/// Drivers prepare the statement anew when the routine is this one.
#[test]
fn a_kept_statement_whose_columns_have_changed_names_the_routine_of_postgresql() {
    let server = serve_plainly();
    let (mut raw, mut other) = (Raw::connect(&server), Raw::connect(&server));
    raw.answers(&query("CREATE TABLE t (a integer)"));
    assert_eq!(
        raw.answers(&[parse("s", "SELECT * FROM t"), describe('S', "s"), sync()].concat()),
        "1 t T ZI"
    );
    assert_eq!(other.answers(&query("ALTER TABLE t ADD COLUMN b integer")), "C ZI");
    let run = [bind("", "s", &[]), execute("", 0), sync()].concat();
    assert_eq!(
        fields(&error_of(&mut raw, &run), "CMR"),
        "C0A000 | Mcached plan must not change result type | RRevalidateCachedQuery"
    );
}

/// The optimiser counts what it plans.
#[test]
fn ddl_on_other_tables_does_not_make_a_kept_statement_be_planned_again() {
    let database = Database::memory().unwrap();
    let config = WireConfig { listen: vec!["127.0.0.1:0".to_owned()], ..WireConfig::default() };
    let server = Server::start(database.clone(), config).unwrap();
    let (mut raw, mut other) = (Raw::connect(&server), Raw::connect(&server));
    raw.answers(&query("CREATE TABLE t (a integer PRIMARY KEY); INSERT INTO t VALUES (1)"));
    raw.answers(&[parse("s", "SELECT a FROM t WHERE a > 0"), sync()].concat());
    let mut planned_by_run = || {
        let before = database.engine().statistics().plans.get();
        let answers = raw.answers(&[bind("", "s", &[]), execute("", 0), sync()].concat());
        assert_eq!(answers, "2 D C ZI");
        database.engine().statistics().plans.get() - before
    };
    assert_eq!(planned_by_run(), 0);
    for sql in [
        "CREATE TABLE u (a integer PRIMARY KEY, b integer)",
        "ALTER TABLE u ADD COLUMN c integer",
        "CREATE INDEX ON u (b)",
        "CREATE VIEW v AS SELECT * FROM t",
        "DROP TABLE u",
    ] {
        other.answers(&query(sql));
        assert_eq!(planned_by_run(), 0, "{sql}");
    }
    other.answers(&query("ALTER TABLE t ADD COLUMN b integer"));
    assert_eq!((planned_by_run(), planned_by_run()), (1, 0));
}

#[test]
fn an_error_in_the_data_of_a_copy_has_its_place() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a integer, b text)"));
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    let data = [message(b'd', b"1\tx\nonce\ty\n"), message(b'c', b"")].concat();
    assert_eq!(
        fields(&error_of(&mut raw, &data), "CMW"),
        "C22P02 | Minvalid input syntax for type integer: \"once\" | WCOPY t, line 2, column a: \"once\""
    );
}

#[test]
fn notices_and_warnings_come_before_the_command_tag() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    raw.answers(&query("CREATE TABLE t (a integer)"));
    for (sql, severity, state) in [
        ("CREATE TABLE IF NOT EXISTS t (a integer)", "NOTICE", "42P07"),
        ("DROP TABLE IF EXISTS nowhere", "NOTICE", "00000"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS nope", "NOTICE", "00000"),
        ("COMMIT", "WARNING", "25P01"),
    ] {
        raw.send(&query(sql));
        let received = raw.until('Z');
        assert_eq!(summary(&received), "N C ZI", "{sql}");
        let notice = &received[0].1;
        assert_eq!(fields(notice, "SVC"), format!("S{severity} | V{severity} | C{state}"), "{sql}");
    }
}
