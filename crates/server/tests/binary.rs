//! The binary as people and scripts use it: output, exit codes, signals.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn firn(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_firn"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs the shell with a script on its standard input.
fn shell(arguments: &[&str], script: &str) -> Output {
    let mut child = firn(&[&["sql"], arguments].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The shell stops reading at an error.
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A server that is stopped when the test ends, however it ends.
struct Served {
    child: Child,
    url: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Served {
        let mut child = firn(&[&["serve", "--listen", "127.0.0.1:0"], arguments].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let first = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").unwrap();
        let url = format!("postgres://tester@{address}/firn");
        Served { child, url }
    }

    fn terminate(mut self) -> i32 {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_script_prints_its_results_and_stops_at_its_first_error() {
    let script = "SELECT 1 AS one,\n 'x' AS two; \\echo here\nSELECT nonsense;\nSELECT 3 AS three;\n";
    let output = shell(&[], script);
    assert_eq!(stdout(&output), " one | two \n-----+-----\n   1 | x\n(1 row)\nhere\n");
    assert!(stderr(&output).contains("nonsense"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_directory_keeps_its_data_between_shells_and_opens_once() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let created = shell(&[data], "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2);");
    assert_eq!(stdout(&created), "CREATE TABLE\nINSERT 0 2\n");
    let found = firn(&["sql", data, "-c", "\\x on", "-c", "SELECT sum(a) AS total FROM t"]).output().unwrap();
    assert!(stdout(&found).ends_with("total | 3\n"), "{}", stdout(&found));

    let served = Served::start(&["--data", data]);
    let refused = firn(&["sql", data, "-c", "SELECT 1"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    let over_the_wire = shell(&[&served.url], "INSERT INTO t VALUES (4); SELECT sum(a) FROM t;");
    assert!(stdout(&over_the_wire).contains("   7\n"), "{}", stdout(&over_the_wire));
    assert_eq!(served.terminate(), 0);
    let after = shell(&[data], "SELECT count(*) FROM t;");
    assert!(stdout(&after).contains("     3\n"), "{}", stdout(&after));
}

#[test]
fn a_server_keeps_to_the_limits_that_it_is_given() {
    let limits = [
        "--memory-limit",
        "64MiB",
        "--query-memory",
        "24MiB",
        "--set",
        "idle_in_transaction_session_timeout=5min",
    ];
    let served = Served::start(&limits);
    let shown = "SHOW memory_limit; SHOW query_memory; SHOW idle_in_transaction_session_timeout; \
                 SELECT usename, client_addr FROM pg_stat_activity;";
    let printed = stdout(&shell(&[&served.url], shown));
    for text in ["64MB", "24MB", "5min", " tester  | 127.0.0.1"] {
        assert!(printed.contains(text), "{text} is missing in\n{printed}");
    }
    let full = "CREATE TABLE t AS SELECT g FROM generate_series(1, 100000000) g;";
    let refused = stderr(&shell(&[&served.url], full));
    assert!(refused.contains("memory_limit") && refused.contains("64.0 MiB"), "{refused}");
    // The input of a join is written to temporary files, and so are rows of a window and those that DISTINCT keeps; the state of one
    // group must fit.
    let series = "generate_series(1, 1000000)";
    let joined = format!("SELECT count(*) AS joined FROM {series} s(a), {series} t(b) WHERE a = b;");
    let ranked = format!(
        "SELECT max(r) AS ranked FROM (SELECT rank() OVER (ORDER BY a DESC) r FROM {series} s(a)) q;"
    );
    let distinct = format!("SELECT count(DISTINCT a) AS differing FROM {series} s(a);");
    for (statement, name) in [(joined, "joined"), (ranked, "ranked"), (distinct, "differing")] {
        let counted = shell(&[&served.url], &statement);
        let printed = stdout(&counted);
        assert!(printed.contains(name) && printed.contains("1000000"), "{printed}\n{}", stderr(&counted));
    }
    let joined = format!("SELECT length(string_agg(repeat('x', 100), '')) FROM {series};");
    let refused = stderr(&shell(&[&served.url], &joined));
    assert!(
        refused.contains("the query needs more memory") && refused.contains("--query-memory"),
        "{refused}"
    );
    // The rows that an UPDATE changes are written to temporary files; the store must have room for their old versions. DELETE is always possible.
    let some = "CREATE TABLE u AS SELECT g FROM generate_series(1::bigint, 1700000) g;";
    assert_eq!(stderr(&shell(&[&served.url], some)), "");
    let limited = "SET temp_file_limit = '1MB'; SHOW temp_file_limit; UPDATE u SET g = g + 1;";
    let refused = shell(&[&served.url], limited);
    assert!(stdout(&refused).contains("1MB"), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("exceeds temp_file_limit (1024kB)"), "{}", stderr(&refused));
    let refused = stderr(&shell(&[&served.url], "UPDATE u SET g = g + 1;"));
    assert!(refused.contains("memory_limit") && refused.contains("64.0 MiB"), "{refused}");
    assert!(stdout(&shell(&[&served.url], "DELETE FROM u;")).contains("DELETE 1700000"));
    assert!(stdout(&shell(&[&served.url], "SELECT 1 AS one;")).contains("one"));
    assert_eq!(served.terminate(), 0);
    let wrongs = [
        ["--memory-limit", "much"],
        ["--set", "idle_session_timeout"],
        ["--set", "nonsense=1"],
        ["--temporary-dir", "/nowhere"],
    ];
    for wrong in wrongs {
        let refused = firn(&[&["serve", "--listen", "127.0.0.1:0"], &wrong[..]].concat()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn files_are_copied_in_and_out() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("in.csv"), "1,one\n2,\"t,wo\"\n").unwrap();
    let show = |path: &Path| path.display().to_string();
    let script = format!(
        "CREATE TABLE t (a int, b text);\n\\copy t FROM '{}' WITH (FORMAT csv)\n\\copy (SELECT b, a FROM t ORDER BY a) TO '{}'\n",
        show(&path("in.csv")),
        show(&path("out.txt"))
    );
    let output = shell(&[], &script);
    assert_eq!(stdout(&output), "CREATE TABLE\nCOPY 2\nCOPY 2\n", "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(path("out.txt")).unwrap(), "one\t1\nt,wo\t2\n");
    let inline =
        shell(&[], "CREATE TABLE t (a int);\nCOPY t FROM STDIN;\n1\n2\n\\.\nSELECT count(*) AS n FROM t;\n");
    assert_eq!(stdout(&inline), "CREATE TABLE\nCOPY 2\n n \n---\n 2\n(1 row)\n", "{}", stderr(&inline));
}

#[test]
fn backslash_commands_list_what_is_there() {
    let output = shell(
        &[],
        "CREATE TABLE item (id int PRIMARY KEY, name varchar(20) NOT NULL, price numeric(10,2) DEFAULT 1.50);\n\
         CREATE VIEW cheap AS SELECT name FROM item;\nCREATE SEQUENCE numbers;\n\
         \\d\n\\dt\n\\di\n\\dv\n\\ds\n\\dn\n\\l\n\\d item\n",
    );
    assert_eq!(stderr(&output), "");
    let printed = stdout(&output);
    for text in
        ["item_pkey", "cheap", "numbers", "public", "character varying(20)", "numeric(10,2)", "not null"]
    {
        assert!(printed.contains(text), "{text} is missing in\n{printed}");
    }
}

#[test]
fn the_shell_shows_how_cold_tables_are() {
    let served = Served::start(&["--freeze-after", "never", "--compact-after", "100ms"]);
    let made = shell(
        &[&served.url],
        "CREATE SCHEMA shop;\nCREATE TABLE shop.item (a int);\nINSERT INTO shop.item VALUES (1), (2), (3);\n\
         CREATE TABLE orders (a int) WITH (freeze_after = 0, compact_after = 'never');\n\
         INSERT INTO orders VALUES (1);\n\
         CREATE TABLE lines (a int) WITH (freeze_after = 0, compact_after = 0);\n\
         INSERT INTO lines VALUES (1), (2);\nCREATE TABLE nothing (a int);\n",
    );
    assert_eq!((stderr(&made), made.status.code()), (String::new(), Some(0)));
    let [hot, frozen, compact] = ["█", "░", "·"].map(|sign| sign.repeat(40));
    let legend = "█ hot  ▓ cooling  ▒ freezing  ░ frozen  · compact\n";
    let item = format!("shop.item {hot} 3 rows: 1 hot\n");
    let expected =
        format!("lines     {compact} 2 rows: 1 compact\norders    {frozen} 1 rows: 1 frozen\n{item}{legend}");
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let output = shell(&[&served.url], "\\temperature\n");
        if stdout(&output) == expected {
            break;
        }
        assert!(Instant::now() < until, "{}{}", stdout(&output), stderr(&output));
        std::thread::sleep(Duration::from_millis(20));
    }
    let some = shell(&[&served.url], "\\temperature shop.*\n\\temperature nothing\n");
    assert_eq!(
        stdout(&some),
        format!("{item}{legend}Did not find any tables with rows.\n"),
        "{}",
        stderr(&some)
    );
}

#[test]
fn an_address_in_use_has_its_own_exit_code() {
    let served = Served::start(&[]);
    let address = served.url.split(['@', '/']).nth(3).unwrap().to_owned();
    let output = firn(&["serve", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(stderr(&output).contains("in use"), "{}", stderr(&output));
}

/// The reader has gone before the first line, as `head` has after its last.
#[test]
fn commands_whose_output_is_not_read_end_silently_and_clean_up() {
    for arguments in [&["demo"][..], &["bench", "compact", "--orders", "1"], &["sql", "-c", "SELECT 1"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let temporary = tempfile::tempdir().unwrap();
        let output = firn(arguments).env("TMPDIR", temporary.path()).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
        assert_eq!(temporary.path().read_dir().unwrap().count(), 0, "{arguments:?}");
    }
}

#[test]
fn wrong_arguments_are_explained_and_have_their_own_exit_code() {
    for (arguments, said) in [
        (&["serve", "--nonsense"][..], "--nonsense"),
        (&["serve", "--user", "ada"], "--auth scram"),
        (&["serve", "--auth", "scram"], "--user"),
        (&["serve", "--auth", "scram", "--user", "ada:/no/such/file"], "/no/such/file"),
        (&["serve", "--listen", "nowhere"], "host:port"),
        // An address that other machines reach trusts all clients only with an explicit option.
        (&["serve", "--listen", "0.0.0.0:0"], "--auth trust"),
        (&["serve", "--listen", "127.0.0.1:0", "--listen", "[::]:0"], "[::]:0"),
        (&["serve", "--listen", "127.0.0.1:0", "--flight", "0.0.0.0:0"], "--auth scram"),
        (&["serve", "--flight-only", "--flight", "0.0.0.0:0"], "--auth scram"),
        (&["serve", "--max-connections", "0"], "--max-connections"),
        (&["serve", "--tls-cert", "a"], "--tls-key"),
        (&["serve", "--tls-ca", "a"], "--tls-cert"),
        (&["serve", "--tls-cert", "/no/such/file", "--tls-key", "b"], "/no/such/file"),
        (&["serve", "--freeze-after", "soon"], "500ms"),
        (&["sql", "localhost:5432"], "postgres://localhost:5432"),
        (&["sql", "mysql://localhost"], "postgres://"),
        (&["bench", "tpcc", "--warehouses", "0"], "--warehouses"),
        (&["bench", "tpcc", "--load", "/no/such/file"], "No such file"),
        (&["bench", "tpcc", "--sql", "--interleaved", "4"], "--interleaved"),
        (&["bench", "tatp", "--sql", "--queued", "4"], "--queued"),
        (&["bench", "tpch", "--scale", "0"], "--scale"),
        (&["bench", "tatp", "--data", "src"], "not empty"),
        (&["bench", "tpcc", "--log", "memory", "--data", "/no/such/directory"], "--log memory"),
    ] {
        let output = firn(arguments).env_remove("FIRN_PASSWORD").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_directory_that_cannot_be_used_is_explained_and_has_its_own_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    assert_eq!(shell(&[data], "CREATE TABLE t (a int);").status.code(), Some(0));
    let manifest = std::fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().to_lowercase().contains("manifest"))
        .expect("a database has a manifest");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let (word, rest) = text.split_once(' ').unwrap();
    let (_, rest) = rest.split_once(' ').unwrap();
    std::fs::write(&manifest, format!("{word} 999 {rest}")).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "x").unwrap();
    for (data, said) in [(data, "999"), (file.to_str().unwrap(), "file")] {
        for arguments in
            [&["sql", data, "-c", "SELECT 1"][..], &["serve", "--listen", "127.0.0.1:0", "--data", data]]
        {
            let output = firn(arguments).output().unwrap();
            assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", stderr(&output));
            assert!(stderr(&output).contains(said), "{arguments:?}: {}", stderr(&output));
        }
    }
}

#[test]
fn statements_and_commands_mix_as_in_psql() {
    let script = "SELECT 1 AS one\n\\p\n\\gx\nSELECT 2\n\\r\nSELECT 3 AS three \\g\n";
    let output = shell(&[], script);
    let expected = "SELECT 1 AS one\n-[ RECORD 1 ]\none | 1\nQuery buffer reset (cleared).\n three \n-------\n     3\n(1 row)\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_reader_that_goes_away_ends_the_shell_quietly() {
    let mut child =
        firn(&["sql"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let script = "\\?\nSELECT 1;\n".repeat(100);
    let _ = child.stdin.take().unwrap().write_all(script.as_bytes());
    let output = child.wait_with_output().unwrap();
    assert_eq!(stderr(&output), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_password_is_asked_for_and_taken_from_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    std::fs::write(&file, "geheim\n").unwrap();
    let user = format!("tester:{}", file.display());
    let served = Served::start(&["--auth", "scram", "--user", &user]);
    let ask = |password: &str| {
        firn(&["sql", &served.url, "-c", "SELECT 1"]).env("FIRN_PASSWORD", password).output().unwrap()
    };
    assert_eq!(ask("geheim").status.code(), Some(0));
    let refused = ask("falsch");
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("password authentication failed"), "{}", stderr(&refused));
}

#[test]
fn everybody_is_trusted_where_that_is_asked_for() {
    let trusting = Served::start(&["--listen", "0.0.0.0:0", "--auth", "trust"]);
    assert!(shell(&[&trusting.url], "SELECT 1;").status.success());
    assert_eq!(trusting.terminate(), 0);
    let alone = Served::start(&["--listen", "localhost:0"]);
    assert!(shell(&[&alone.url], "SELECT 1;").status.success());
}

#[test]
fn the_shell_checks_whom_it_talks_to_and_shows_who_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let signed = |name: &str| {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        (
            file(&format!("{name}.crt"), &made.cert.pem()),
            file(&format!("{name}.key"), &made.signing_key.serialize_pem()),
        )
    };
    let (own, key) = signed("localhost");
    let (client, client_key) = signed("ada");
    let (stranger, _) = signed("elsewhere");
    let user = format!("tester:{}", file("password", "geheim"));
    let tls = ["--auth", "scram", "--user", &user, "--tls-cert", &own, "--tls-key", &key];
    let served = Served::start(&tls);
    let ask = |served: &Served, host: &str, parameters: &str| {
        let url = format!("{}?{parameters}", served.url.replace("127.0.0.1", host));
        let sql = "\\conninfo\nSELECT version || coalesce(client_dn, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid();";
        firn(&["sql", &url, "-c", sql]).env("FIRN_PASSWORD", "geheim").output().unwrap()
    };
    for (host, parameters) in [
        ("localhost", format!("sslmode=verify-full&sslrootcert={own}")),
        // By another name it is refused, unless only the authority is asked.
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={own}")),
        ("127.0.0.1", "sslmode=require".to_owned()),
        ("127.0.0.1", String::new()),
    ] {
        let output = ask(&served, host, &parameters);
        let printed = stdout(&output);
        assert!(
            printed.contains("encrypted") && printed.contains("TLSv1.3"),
            "{parameters}: {printed}{}",
            stderr(&output)
        );
    }
    for (host, parameters, because) in [
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={own}"), "certificate"),
        ("localhost", format!("sslmode=verify-full&sslrootcert={stranger}"), "certificate"),
        ("localhost", "sslmode=verify-full&sslrootcert=/no/such/file".to_owned(), "/no/such/file"),
        ("localhost", "sslmode=sometimes".to_owned(), "sometimes"),
    ] {
        let output = ask(&served, host, &parameters);
        assert!(
            !output.status.success() && stderr(&output).contains(because),
            "{parameters}: {}",
            stderr(&output)
        );
    }
    let output = ask(&served, "127.0.0.1", "sslmode=disable");
    assert!(!stdout(&output).contains("encrypted") && output.status.success(), "{}", stderr(&output));
    assert_eq!(served.terminate(), 0);

    let served = Served::start(&[&tls[..], &["--tls-ca", &client]].concat());
    let output = ask(&served, "localhost", &format!("sslmode=require&sslcert={client}&sslkey={client_key}"));
    assert!(stdout(&output).contains("TLSv1.3/CN="), "{}{}", stdout(&output), stderr(&output));
    for parameters in ["sslmode=require", "sslmode=disable"] {
        assert!(!ask(&served, "localhost", parameters).status.success(), "{parameters}");
    }
    let plain = Served::start(&[]);
    let output = ask(&plain, "localhost", "sslmode=require");
    assert!(stderr(&output).contains("server does not support SSL"), "{}", stderr(&output));
}

/// A database with one object of every kind, whose views have been replaced so that an older one uses a newer one.
const SHOP: &str = r#"
CREATE SCHEMA "My shop";
CREATE TABLE "My shop".customers (
    id bigint GENERATED BY DEFAULT AS IDENTITY (START WITH 7 INCREMENT BY 2) PRIMARY KEY,
    name varchar(20) NOT NULL DEFAULT 'it''s', code char(4), born date, seen timestamptz, at timestamp, tod time,
    span interval, raw bytea, uid uuid, ok boolean, a smallint, b real, c double precision, price numeric(12,2),
    free numeric, twice numeric GENERATED ALWAYS AS (free * 2) STORED, UNIQUE (name, code), CONSTRAINT positive CHECK (price > 0)) WITH (freeze_after = '1h');
CREATE TABLE orders (id serial PRIMARY KEY, customer bigint REFERENCES "My shop".customers ON DELETE CASCADE,
    parent int REFERENCES orders DEFERRABLE INITIALLY DEFERRED, dropped int, "From" text,
    next int GENERATED ALWAYS AS (id + 1) STORED UNIQUE);
ALTER TABLE orders DROP COLUMN dropped;
CREATE INDEX by_customer ON orders (customer, "From" DESC NULLS LAST);
CREATE UNIQUE INDEX by_both ON orders (id, "From");
CREATE UNIQUE INDEX by_expression ON orders (lower("From"), (id - next)) WHERE parent > 10 AND "From" IS NOT NULL;
CREATE INDEX by_text ON orders ("From") WITH (values = off);
CREATE SEQUENCE steps INCREMENT BY -5 MINVALUE -100 MAXVALUE -1 CYCLE;
CREATE TABLE empty (a int);
CREATE VIEW first (n) AS SELECT 1;
CREATE VIEW second (n) AS SELECT count(*)::int FROM orders;
CREATE OR REPLACE VIEW first (n) AS SELECT n FROM second;
INSERT INTO "My shop".customers VALUES
    (DEFAULT, E'a\n"b"', 'ab', '0044-03-15 BC', '2024-02-03 04:05:06.789+03', '1999-12-31 23:59:59.999999', '24:00',
     '1 year -2 mons 3 days -04:05:06.7', '\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', true, -1, 'NaN', '-Infinity',
     0.01, 1234567890.123456789),
    (DEFAULT, '', NULL, NULL, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, 1e-30, 1e300, NULL, -0.5);
INSERT INTO orders (customer, parent, "From") SELECT 7 + 2 * (i % 2), NULLIF(i, 1) - 1, 'row ' || i FROM generate_series(1, 3000) i;
CREATE TABLE late (a int, up int);
INSERT INTO late VALUES (-1, -1);
ALTER TABLE late ADD CONSTRAINT late_a CHECK (a > 0) NOT VALID, ADD FOREIGN KEY (up) REFERENCES orders DEFERRABLE NOT VALID;
SELECT nextval('steps'); SELECT nextval('steps');
"#;

/// The whole content of such a database; the next values of sequences are read last.
const CONTENTS: &str = r#"
SELECT * FROM "My shop".customers ORDER BY id; SELECT * FROM orders ORDER BY id; SELECT * FROM empty;
SELECT * FROM first; SELECT * FROM second;
SELECT *, (SELECT count(*) FROM pg_constraint WHERE NOT convalidated) FROM late;
SELECT section, statement FROM firn_dump WHERE NOT (section = 'data' AND kind = 'sequence') ORDER BY section, lower(statement);
SELECT nextval('steps') < -10, nextval('orders_id_seq') > 3000; INSERT INTO "My shop".customers (name) VALUES ('x') RETURNING id > 9;
"#;

fn succeed(arguments: &[&str]) -> String {
    let output = firn(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_database_is_dumped_and_restored_in_either_format_here_and_over_a_connection() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let made = shell(&[&path("original")], SHOP);
    assert!(made.status.success(), "{}", stderr(&made));
    let arrow = succeed(&["dump", &path("original"), &path("arrow")]);
    assert!(arrow.starts_with("dumped 4 tables, 3003 rows, "), "{arrow}");
    let served = Served::start(&["--data", &path("original")]);
    succeed(&["dump", &served.url, &path("parquet"), "--format", "parquet", "--compression", "zstd"]);
    succeed(&["dump", &served.url, &path("streams")]);
    assert_eq!(served.terminate(), 0);
    succeed(&["restore", &path("arrow"), &path("from arrow")]);
    succeed(&["restore", &path("streams"), &path("from streams")]);
    let served = Served::start(&["--data", &path("from parquet")]);
    let restored = succeed(&["restore", &path("parquet"), &served.url]);
    assert!(restored.starts_with("restored 4 tables, 3003 rows, "), "{restored}");
    // A second time all objects exist already, and are unchanged.
    let again = firn(&["restore", &path("arrow"), &served.url]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("schema.sql: schema \"My shop\" already exists"), "{}", stderr(&again));
    assert_eq!(served.terminate(), 0);
    // The text of a default may be restored in another case.
    let contents = |database: &str| stdout(&shell(&[&path(database)], CONTENTS)).to_lowercase();
    let original = contents("original");
    assert!(original.contains("3000") && original.contains("create view public.second"));
    assert!(original.contains(" -1 | -1 |     2\n"), "{original}");
    for copy in ["from arrow", "from streams", "from parquet"] {
        let copied = contents(copy);
        let lines = copied.lines().zip(original.lines()).find(|(copied, original)| copied != original);
        assert_eq!(lines, None, "{copy}");
        assert_eq!(copied.len(), original.len(), "{copy}");
    }
}

#[test]
fn only_whole_dumps_are_restored_and_all_of_them_or_nothing() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let made = "CREATE TABLE a (i int PRIMARY KEY); CREATE TABLE b (i int); INSERT INTO a VALUES (1); INSERT INTO b VALUES (1), (1);";
    assert!(shell(&[&path("original")], made).status.success());
    succeed(&["dump", &path("original"), &path("dump")]);
    let fails = |arguments: &[&str], code: i32, what: &str| {
        let output = firn(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    };
    fails(&["dump", &path("original"), &path("dump")], 2, "is not empty");
    fails(&["dump", &path("nothing"), &path("other")], 2, "there is no database in");
    fails(&["dump", &path("original"), &path("other"), "--compression", "brotli"], 1, "There are");
    fails(&["restore", &path("other"), &path("new")], 3, "is not a dump, or was not finished");
    // The rows of the second table are not stored in the first one.
    let data = |number: u8| place.path().join(format!("dump/data/{number}.arrow"));
    std::fs::copy(data(2), data(1)).unwrap();
    fails(&["restore", &path("dump"), &path("new")], 3, "data/1.arrow is damaged: ");
    let tables = shell(&[&path("new")], "SELECT count(*) FROM pg_tables WHERE schemaname = 'public';");
    assert!(stdout(&tables).contains("0\n(1 row)"), "{}", stdout(&tables));
    // Nor are they if the dump is an older one, without checksums.
    forget_checksums(&place.path().join("dump/dump.json"));
    fails(&["restore", &path("dump"), &path("new")], 1, "data/1.arrow: duplicate key");
    let tables = shell(&[&path("new")], "SELECT count(*) FROM pg_tables WHERE schemaname = 'public';");
    assert!(stdout(&tables).contains("0\n(1 row)"), "{}", stdout(&tables));
    // A damaged file, and a missing one, restored here and into a server.
    let served = Served::start(&["--data", &path("served")]);
    let whole = std::fs::read(data(2)).unwrap();
    for target in [&path("new"), &served.url] {
        std::fs::write(data(1), &whole[..whole.len() / 2]).unwrap();
        fails(&["restore", &path("dump"), target], 3, "data/1.arrow");
        std::fs::remove_file(data(1)).unwrap();
        fails(&["restore", &path("dump"), target], 3, "data/1.arrow");
    }
    assert_eq!(served.terminate(), 0);
    std::fs::write(place.path().join("dump/dump.json"), "{\"version\": 2}").unwrap();
    fails(&["restore", &path("dump"), &path("new")], 3, "it has version 2");
    succeed(&["dump", &path("original"), &path("schema"), "--schema-only"]);
    succeed(&["restore", &path("schema"), &path("new")]);
    assert!(stdout(&shell(&[&path("new"), "-c", "SELECT count(*) FROM a"], "")).contains("0\n"));
}

/// Makes a dump look like one that was written before there were checksums.
fn forget_checksums(manifest: &Path) {
    let mut value: serde_json::Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    assert!(value["tables"][0]["checksum"]["bytes"].as_u64().unwrap() > 0, "{value}");
    for table in value["tables"].as_array_mut().unwrap() {
        table.as_object_mut().unwrap().remove("checksum");
    }
    for key in ["scripts", "checksum"] {
        assert!(value.as_object_mut().unwrap().remove(key).is_some(), "{value}");
    }
    std::fs::write(manifest, value.to_string()).unwrap();
}

/// Flips single bits all over every file of several dumps, and restores each.
#[test]
fn a_dump_with_a_flipped_bit_is_refused_or_restores_the_same() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let made = "CREATE TABLE a (i int, t text); INSERT INTO a SELECT i, 'text ' || i FROM generate_series(1, 50) i; \
                CREATE VIEW v AS SELECT i FROM a WHERE i > 3;";
    assert!(shell(&[&path("original")], made).status.success());
    let ask = "SELECT count(*), sum(i), string_agg(t, ' ' ORDER BY i) FROM a; SELECT count(*) FROM v; \
               SELECT statement FROM firn_dump;";
    let contents = |database: &str| stdout(&shell(&[&path(database)], ask));
    let original = contents("original");
    let (mut refused, mut restored) = (0, 0);
    for (name, options) in [
        ("arrow", &["--format", "arrow"][..]),
        ("lz4", &["--compression", "lz4"]),
        ("parquet", &["--format", "parquet"]),
        ("zstd", &["--format", "parquet", "--compression", "zstd"]),
    ] {
        let dump = path(name);
        succeed(&[&["dump", &path("original"), &dump], options].concat());
        let extension = if name == "arrow" || name == "lz4" { "arrow" } else { "parquet" };
        let data = format!("data/1.{extension}");
        for file in [&data, "schema.sql", "constraints.sql", "dump.json"] {
            if name != "arrow" && file != data {
                continue; // These are the same in all.
            }
            let place = Path::new(&dump).join(file);
            let whole = std::fs::read(&place).unwrap();
            let count = if file == "dump.json" { 40 } else { 10 };
            for part in 0..count {
                let (byte, bit) = (whole.len() * part / count, part % 8);
                let mut damaged = whole.clone();
                damaged[byte] ^= 1 << bit;
                std::fs::write(&place, damaged).unwrap();
                let output = firn(&["restore", &dump, &path("copy")]).output().unwrap();
                let message = format!("{dump}/{file}, bit {bit} of byte {byte}: {}", stderr(&output));
                match output.status.code() {
                    Some(3) => {
                        refused += 1;
                        assert!(
                            message.contains(&format!("{file} is damaged")) || file == "dump.json",
                            "{message}"
                        );
                    }
                    Some(0) => {
                        restored += 1;
                        assert!(file == "dump.json", "{message}");
                        assert_eq!(contents("copy"), original, "{message}");
                        std::fs::remove_dir_all(path("copy")).unwrap();
                    }
                    _ => panic!("{message}"),
                }
            }
            std::fs::write(&place, whole).unwrap();
        }
        // A refused restore has left nothing behind.
        succeed(&["restore", &dump, &path("copy")]);
        assert_eq!(contents("copy"), original);
        std::fs::remove_dir_all(path("copy")).unwrap();
    }
    assert!(refused >= 90 && restored <= 10, "{refused} refused, {restored} restored");
}

#[test]
fn views_of_files_that_are_gone_are_all_that_a_restore_does_without() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(place.path().join("a.csv"), "n\n1\n").unwrap();
    let made = format!(
        "CREATE TABLE t (i int); INSERT INTO t VALUES (1); CREATE VIEW of_table AS SELECT i, ';\n' AS x FROM t; \
         CREATE VIEW of_file AS SELECT n FROM '{}'; CREATE VIEW of_view AS SELECT n + 1 AS m FROM of_file; \
         CREATE TABLE bare (); INSERT INTO bare DEFAULT VALUES; INSERT INTO bare DEFAULT VALUES;",
        path("a.csv")
    );
    assert!(shell(&[&path("original")], &made).status.success());
    let dumped = succeed(&["dump", &path("original"), &path("dump")]);
    assert!(dumped.starts_with("dumped 2 tables, 3 rows, "), "{dumped}");
    succeed(&["restore", &path("dump"), &path("here")]);
    let ask = "SELECT (SELECT count(*) FROM bare) || '/' || i || x FROM of_table;";
    assert!(stdout(&shell(&[&path("here")], ask)).contains("2/1;"));
    std::fs::remove_file(place.path().join("a.csv")).unwrap();
    let output = firn(&["restore", &path("dump"), &path("there")]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).starts_with("restored 2 tables, 3 rows, "), "{}", stdout(&output));
    let message = stderr(&output);
    assert!(
        message.contains("CREATE VIEW public.of_file") && message.contains("could not read file"),
        "{message}"
    );
    assert!(
        message.contains("CREATE VIEW public.of_view") && !message.contains("VIEW public.of_table"),
        "{message}"
    );
    assert!(stdout(&shell(&[&path("there")], ask)).contains("2/1;"));
    let views =
        stdout(&shell(&[&path("there")], "SELECT count(*) FROM pg_views WHERE schemaname = 'public';"));
    assert!(views.contains("1\n(1 row)"), "{views}");
}

#[test]
fn scripts_of_pg_dump_are_run() {
    let script = r#"
\restrict Key1
SET client_min_messages = warning;
SET transaction_timeout = 0;
SELECT pg_catalog.set_config('search_path', '', false);
CREATE TABLE public.t (
    id integer NOT NULL,
    name text COLLATE pg_catalog."C"
);
ALTER TABLE public.t ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.other_name
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
COPY public.t (id, name) FROM stdin;
1	one
2	\N
\.
SELECT pg_catalog.setval('public.other_name', 2, true);
ALTER TABLE ONLY public.t
    ADD CONSTRAINT t_pkey PRIMARY KEY (id);
CREATE INDEX t_name ON public.t USING btree (name COLLATE "C");
\unrestrict Key1
INSERT INTO public.t (name) VALUES ('three');
SELECT * FROM public.t ORDER BY id;
"#;
    let output = shell(&[], script);
    assert_eq!(stderr(&output), "");
    let shown = stdout(&output);
    assert!(
        shown.ends_with(" id | name  \n----+-------\n  1 | one\n  2 | \n  3 | three\n(3 rows)\n"),
        "{shown}"
    );
    // With --quote-all-identifiers, and settings of pg_dump for PostgreSQL's planner.
    let script = r#"
CREATE TABLE "public"."q" (
    "id" integer NOT NULL,
    "name" character varying(20) DEFAULT "lower"('X'::"text"),
    "born" "date",
    CONSTRAINT "q_check" CHECK (("char_length"(("name")::"text") > 0))
);
ALTER TABLE ONLY "public"."q" ALTER COLUMN "name" SET STATISTICS 300;
ALTER TABLE ONLY "public"."q" ALTER COLUMN "name" SET (n_distinct=-0.3);
ALTER TABLE ONLY "public"."q" ALTER COLUMN "name" SET STORAGE EXTERNAL;
CREATE SEQUENCE "public"."q_id_seq" AS integer START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1;
ALTER SEQUENCE "public"."q_id_seq" OWNED BY "public"."q"."id";
ALTER TABLE ONLY "public"."q" ALTER COLUMN "id" SET DEFAULT "nextval"('"public"."q_id_seq"'::"regclass");
CREATE VIEW "public"."v" AS SELECT "g"."i" FROM "generate_series"(1, 2) "g"("i");
SELECT pg_catalog.setval('"public"."q_id_seq"', 4, true);
ALTER TABLE ONLY "public"."q" ADD CONSTRAINT "q_pkey" PRIMARY KEY ("id");
ALTER TABLE "public"."q" CLUSTER ON "q_pkey";
CREATE INDEX "q_name" ON "public"."q" USING "btree" ("name" "varchar_pattern_ops" DESC);
COMMENT ON DATABASE "shop" IS 'All of it.';
COMMENT ON CONSTRAINT "q_check" ON "public"."q" IS 'Names are not empty.';
INSERT INTO q DEFAULT VALUES;
SELECT * FROM q, v;
"#;
    let output = shell(&[], script);
    // The comment is on a database with another name.
    assert_eq!(stderr(&output), "NOTICE:  database \"shop\" does not exist\n");
    assert!(
        stdout(&output).ends_with("  5 | x    |      | 1\n  5 | x    |      | 2\n(2 rows)\n"),
        "{}",
        stdout(&output)
    );
    let output = shell(&[], "\\restrict Key1\n\\echo no\n\\unrestrict Key1\n");
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("", Some(1)));
    assert!(stderr(&output).contains("only \\unrestrict"), "{}", stderr(&output));
}
