//! Deep statements end in 54001 before the stack does; wide ones are lists and take linear time.
//!
//! Everything runs on a thread with a stack of 1 MiB: parsing, printing, cloning, comparing, Debug, Drop.

use firn_syntax::{DEPTH_LIMIT, Options, parse, parse_expression, print};

/// Runs on a stack of 1 MiB.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

/// Does with the statements of a text whatever walks the whole tree.
fn walk(text: &str) {
    let statements =
        parse(text, Options::default()).unwrap_or_else(|error| panic!("{error:?}: {}", head(text)));
    for node in &statements {
        let printed = print::statement(&node.statement);
        let again = parse(&printed, Options::default())
            .unwrap_or_else(|error| panic!("{error:?}: printed {}", head(&printed)));
        assert!(again[0].statement == node.statement, "{}", head(&printed));
        let copy = again[0].clone();
        assert!(format!("{copy:?}").len() > printed.len() / 2);
    }
}

fn head(text: &str) -> &str {
    &text[..text.len().min(200)]
}

/// Texts that nest by `n` levels or some times as many.
fn deep(n: usize) -> Vec<(&'static str, String)> {
    let nest = |before: &str, inside: &str, behind: &str| {
        format!("SELECT {}{inside}{}", before.repeat(n), behind.repeat(n))
    };
    vec![
        ("parentheses", nest("(", "1", ")")),
        ("sums in parentheses", nest("(1 + ", "1", ")")),
        ("right operands", nest("1 + (2 * ", "1", ")")),
        ("rows", nest("(1, ", "1", ")")),
        ("explicit rows", nest("ROW(", "1", ")")),
        ("calls", nest("abs(", "1", ")")),
        ("named arguments", nest("f(a => ", "1", ")")),
        ("casts", nest("CAST(", "1", " AS int)")),
        ("typed casts", nest("CAST(", "1", " AS numeric(1))")),
        ("CASE", nest("CASE WHEN true THEN ", "1", " ELSE 0 END")),
        ("CASE conditions", nest("CASE WHEN ", "true", " THEN 1 END")),
        ("coalesce", nest("coalesce(1, ", "1", ")")),
        ("arrays", nest("ARRAY[", "1", "]")),
        ("nested arrays", format!("SELECT ARRAY{}1{}", "[".repeat(n), "]".repeat(n))),
        ("subscripts", nest("a[", "1", "]")),
        ("slices", nest("a[1:", "1", "]")),
        ("sub-queries", nest("(SELECT ", "1", ")")),
        ("sub-queries with parentheses", nest("((SELECT ", "1", "))")),
        ("EXISTS", nest("EXISTS (SELECT 1 WHERE ", "true", ")")),
        ("IN", nest("1 IN (", "1", ")")),
        ("IN of queries", nest("1 IN (SELECT ", "1", ")")),
        ("ANY", nest("1 = ANY (", "1", ")")),
        ("ARRAY of queries", nest("ARRAY(SELECT ", "1", ")")),
        ("BETWEEN", nest("1 BETWEEN (", "1", ") AND 2")),
        ("sums in BETWEEN", nest("1 BETWEEN 1 + (", "1", ") AND 2")),
        ("prefixes in BETWEEN", nest("1 BETWEEN - (NOT ", "true", ") AND 2")),
        ("sums in POSITION", nest("position('a' || (", "'a'", ") IN 'a')")),
        ("BETWEEN above", nest("1 BETWEEN 0 AND (", "1", ")")),
        ("LIKE", nest("'a' LIKE (", "'a'", ")")),
        ("NOT in sums", nest("1 + NOT ", "true", "")),
        ("NOT and minus in products", nest("1 * - NOT ", "true", "")),
        ("windows", nest("f(", "1", ") OVER (PARTITION BY a ORDER BY b ROWS 1 PRECEDING)")),
        ("windows in windows", nest("f() OVER (ORDER BY ", "1", ")")),
        ("filters", nest("f() FILTER (WHERE ", "true", ")")),
        ("substring", nest("substring(", "'a'", " FROM 1 FOR 2)")),
        ("trim", nest("trim(", "'a'", ")")),
        ("extract", nest("extract(year FROM ", "a", ")")),
        ("position", nest("position((", "'a'", ") IN 'a')")),
        ("xml", nest("xmlelement(NAME a, ", "1", ")")),
        ("OVERLAPS", nest("((1, 2) OVERLAPS (1, ", "1", "))")),
        ("derived tables", format!("SELECT 1 FROM {}a{}", "(SELECT 1 FROM ".repeat(n), ") q".repeat(n))),
        ("joins in parentheses", format!("SELECT 1 FROM {}a{}", "(a JOIN ".repeat(n), " ON true)".repeat(n))),
        ("joins to the right", format!("SELECT 1 FROM a{}{}", " JOIN a".repeat(n), " ON true".repeat(n))),
        ("joins with aliases", format!("SELECT 1 FROM {}a{}", "(".repeat(n), " CROSS JOIN b) q".repeat(n))),
        ("unions to the right", format!("{}SELECT 1{}", "SELECT 1 UNION (".repeat(n), ")".repeat(n))),
        (
            "unions with clauses",
            format!("{}SELECT 1{}", "(SELECT 1 UNION (".repeat(n), ") LIMIT 1)".repeat(n)),
        ),
        ("queries in parentheses", format!("{}SELECT 1{}", "(".repeat(n), ")".repeat(n))),
        ("WITH", format!("{}SELECT 1{}", "WITH a AS (".repeat(n), ") SELECT 1".repeat(n))),
        (
            "WITH of changes",
            format!("{}SELECT 1{}", "WITH a AS (INSERT INTO t ".repeat(n), ") SELECT 1".repeat(n)),
        ),
        ("EXPLAIN", format!("EXPLAIN SELECT {}1{}", "(".repeat(n), ")".repeat(n))),
        ("grouping sets", { format!("SELECT 1 GROUP BY {}a{}", "GROUPING SETS (".repeat(n), ")".repeat(n)) }),
        ("table functions", format!("SELECT 1 FROM f({}1{})", "(SELECT 1 FROM f(".repeat(n), "))".repeat(n))),
        ("LIMIT", format!("{}SELECT 1{}", "SELECT 1 LIMIT (".repeat(n), ")".repeat(n))),
        ("modifiers", nest("a::t(", "1", ")")),
        ("updates", format!("UPDATE t SET a = {}1{}", "(SELECT ".repeat(n), ")".repeat(n))),
        (
            "bodies of procedures",
            format!(
                "{}SELECT 1; {}",
                "CREATE PROCEDURE p() BEGIN ATOMIC ".repeat(n),
                "END; ".repeat(n).trim_end_matches("; ")
            ),
        ),
        (
            "defaults of columns",
            format!("CREATE TABLE t (a int DEFAULT {}1{})", "(".repeat(n), ")".repeat(n)),
        ),
        ("checks", format!("CREATE TABLE t (CHECK ({}1{}))", "(SELECT ".repeat(n), ")".repeat(n))),
        ("views", format!("CREATE VIEW v AS {}SELECT 1{}", "SELECT 1 UNION (".repeat(n), ")".repeat(n))),
        (
            "schemas",
            format!("CREATE SCHEMA s CREATE VIEW v AS SELECT {}1{}", "(SELECT ".repeat(n), ")".repeat(n)),
        ),
        (
            "EXPLAIN of CREATE",
            format!("EXPLAIN CREATE TABLE t AS SELECT {}1{}", "(".repeat(n), ")".repeat(n)),
        ),
        (
            "USING of types",
            format!("ALTER TABLE t ALTER a TYPE int USING {}1{}", "(SELECT ".repeat(n), ")".repeat(n)),
        ),
        ("indexes", format!("CREATE INDEX i ON t ({}1{})", "(".repeat(n), ")".repeat(n))),
        ("COPY", format!("COPY ({}SELECT 1{}) TO 'x'", "WITH a AS (".repeat(n), ") SELECT 1".repeat(n))),
        (
            "rules",
            format!("CREATE RULE r AS ON INSERT TO t DO (SELECT {}1{})", "(SELECT ".repeat(n), ")".repeat(n)),
        ),
        ("triggers", {
            let when = format!("{}a{}", "(".repeat(n), ")".repeat(n));
            format!("CREATE TRIGGER t AFTER INSERT ON t WHEN ({when}) EXECUTE FUNCTION f()")
        }),
        ("merges", {
            format!(
                "MERGE INTO t USING s ON {}1{} WHEN MATCHED THEN DELETE",
                "(SELECT ".repeat(n),
                ")".repeat(n)
            )
        }),
    ]
}

#[test]
fn the_deepest_trees_fit_a_small_stack() {
    on_small_stack(|| {
        for (what, _) in deep(1) {
            // The largest number of levels that is not refused, by halving.
            let text = |n| deep(n).into_iter().find(|(name, _)| *name == what).unwrap().1;
            let (mut works, mut fails) = (1, DEPTH_LIMIT as usize + 1);
            while fails - works > 1 {
                let middle = (works + fails) / 2;
                if parse(&text(middle), Options::default()).is_ok() { works = middle } else { fails = middle }
            }
            assert!(works >= DEPTH_LIMIT as usize / 3 - 2, "{what}: only {works} levels");
            walk(&text(works));
        }
    });
}

#[test]
fn what_is_deeper_is_54001() {
    on_small_stack(|| {
        for n in [DEPTH_LIMIT as usize + 1, 3000, 100_000] {
            for (what, text) in deep(n) {
                let error = parse(&text, Options::default()).expect_err(what);
                assert_eq!(error.state().as_str(), "54001", "{what}: {error:?}");
                assert_eq!(error.message(), "stack depth limit exceeded");
                assert!(error.hint().is_some() && error.position().is_some());
            }
        }
    });
}

#[test]
fn a_lower_limit_is_kept_and_a_higher_one_is_not() {
    let text = format!("SELECT {}1{}", "(".repeat(40), ")".repeat(40));
    let with = |depth_limit| parse(&text, Options { depth_limit, ..Options::default() });
    assert_eq!(with(20).unwrap_err().state().as_str(), "54001");
    assert!(with(100).is_ok());
    let error = parse(
        &format!("SELECT {}", "(".repeat(100_000)),
        Options { depth_limit: u32::MAX, ..Options::default() },
    );
    assert_eq!(error.unwrap_err().state().as_str(), "54001");
    assert!(parse_expression("((1))", Options { depth_limit: 2, ..Options::default() }).is_err());
}

#[test]
fn what_is_never_closed_is_a_syntax_error() {
    on_small_stack(|| {
        for start in [
            "CAST(",
            "coalesce(",
            "abs(",
            "CASE WHEN ",
            "(",
            "(SELECT ",
            "1 IN (",
            "ARRAY[",
            "((",
            "((SELECT ",
        ] {
            let error = parse(&format!("SELECT {}1", start.repeat(24)), Options::default()).unwrap_err();
            assert_eq!(error.state().as_str(), "42601", "{start}");
        }
        for (text, near) in [
            (format!("SELECT {}1 1{}", "CAST(".repeat(24), " AS int)".repeat(24)), "1"),
            (format!("SELECT {}'a' 'b' c d{}", "lower(".repeat(24), ")".repeat(24)), "'b'"),
            (format!("SELECT {}1{}", "coalesce(".repeat(24), ")".repeat(25)), ")"),
        ] {
            let error = parse(&text, Options::default()).unwrap_err();
            assert_eq!(error.message(), format!("syntax error at or near \"{near}\""), "{text}");
        }
    });
}

/// Texts with a list of `n` items.
fn wide(n: usize) -> Vec<String> {
    let chain = |first: &str, step: &str| format!("SELECT {first}{}", step.repeat(n));
    vec![
        chain("1", " + 1"),
        chain("1", " + x - x"),
        chain("1", " * 2 + 1 IS NULL"),
        chain("'a'", " || 'b'"),
        chain("true", " AND true"),
        chain("false", " OR false"),
        chain("false", " OR false AND true"),
        chain("x = 0", " OR x = 1 AND NOT y"),
        chain("1", "::int"),
        chain("'5'", "::int::text"),
        chain("1", "::numeric(10, 2)"),
        chain("1", " IS NULL"),
        chain("1", " IS NOT NULL::bool"),
        chain("1", " ISNULL NOTNULL"),
        chain("1", " IS NULL + 1"),
        chain("1", " IN (1)"),
        chain("a", " COLLATE \"C\""),
        chain("a", " AT TIME ZONE 'UTC'"),
        chain("a", "[1]"),
        chain("(a)", ".b"),
        format!("SELECT {}true", "NOT ".repeat(n)),
        format!("SELECT {}1", "- ".repeat(n)),
        format!("SELECT {}1", "@ ".repeat(n)),
        format!("SELECT {}1", "- + NOT ".repeat(n)),
        chain("a", ", a"),
        chain("a", " , 'b' AS c"),
        format!("SELECT f(1{})", ", 2".repeat(n)),
        format!("SELECT 1 IN (1{})", ", 2".repeat(n)),
        format!("SELECT CASE{} END", " WHEN a THEN b".repeat(n)),
        format!("SELECT ARRAY[1{}]", ", 2".repeat(n)),
        format!("VALUES (1, 'a'){}", ", (2, 'b')".repeat(n)),
        format!("INSERT INTO t (a, b) VALUES (1, 'a'){}", ", (2, 'b')".repeat(n)),
        format!("SELECT 1{}", " UNION ALL SELECT 1".repeat(n)),
        format!("SELECT 1{}", " UNION SELECT 1 INTERSECT SELECT 2 EXCEPT SELECT 3".repeat(n)),
        format!("SELECT 1 FROM a{}", ", a".repeat(n)),
        format!("SELECT 1 FROM a{}", " JOIN a ON true".repeat(n)),
        format!("SELECT 1 FROM a{}", " CROSS JOIN a NATURAL LEFT JOIN b".repeat(n)),
        format!("WITH a AS (SELECT 1){} SELECT 1", ", b AS (SELECT 2)".repeat(n)),
        format!("SELECT 1 FROM a ORDER BY a{}", ", b DESC".repeat(n)),
        format!("SELECT 1{}", " FOR UPDATE".repeat(n)),
        format!("SELECT 1{}", "; SELECT 2".repeat(n)),
        format!("UPDATE t SET a = 1{}", ", a = 2".repeat(n)),
        format!("SELECT 'a'{}", "\n'b'".repeat(n)),
        format!("SELECT U&\"a\" FROM t{}", ", U&\"b\"".repeat(n)),
        format!("SELECT {}1{}", "/*".repeat(n), "*/".repeat(n)),
        format!("SELECT 1{}", ";".repeat(n)),
        format!("SELECT a{}", ".b".repeat(n)),
        format!("CREATE TABLE t (a int{})", ", b text NOT NULL DEFAULT 'x' CHECK (b > 'a')".repeat(n)),
        format!("CREATE TABLE t (a int{})", " NOT NULL".repeat(n)),
        format!("CREATE TABLE t (LIKE u{})", " INCLUDING ALL".repeat(n)),
        format!("CREATE TABLE t (a int{})", ", FOREIGN KEY (a) REFERENCES u".repeat(n)),
        format!("ALTER TABLE t ADD a int{}", ", DROP COLUMN a CASCADE".repeat(n)),
        format!("CREATE INDEX i ON t (a{})", ", lower(b) DESC".repeat(n)),
        format!("CREATE SEQUENCE s{}", " CYCLE".repeat(n)),
        format!("CREATE SCHEMA s{}", " CREATE VIEW v AS SELECT 1".repeat(n)),
        format!("DROP TABLE t{}", ", s.t".repeat(n)),
        format!("DROP FUNCTION f{}", ", g(int, a text)".repeat(n)),
        format!("COPY t FROM 'x' (a b{})", ", c (d, e)".repeat(n)),
        format!("COPY t FROM 'x'{}", " CSV".repeat(n)),
        format!("SET a TO b{}", ", 'c'".repeat(n)),
        format!("VACUUM t{}", ", t (a, b)".repeat(n)),
        format!("GRANT SELECT ON t TO a{}", ", b".repeat(n)),
        format!("CREATE ROLE a{}", " LOGIN".repeat(n)),
        format!("CREATE FUNCTION f(){}", " STABLE".repeat(n)),
        format!("CREATE FUNCTION f(a int{}) RETURNS int", ", b text = 'x'".repeat(n)),
        format!("CREATE PROCEDURE p() BEGIN ATOMIC {}END", "SELECT 1; ".repeat(n)),
        format!("CREATE TYPE t AS ENUM ('a'{})", ", 'b'".repeat(n)),
        format!("CREATE PUBLICATION p FOR TABLE t{}", ", u".repeat(n)),
        format!("CREATE TRIGGER t AFTER INSERT ON t EXECUTE FUNCTION f(1{})", ", a".repeat(n)),
    ]
}

#[test]
fn wide_statements_are_lists() {
    on_small_stack(|| {
        for text in wide(20_000) {
            walk(&text);
        }
    });
}
