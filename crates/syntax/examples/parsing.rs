//! What parsing costs: short statements, INSERT of many rows, and long and deep statements, whose time grows with their length.

use firn_syntax::{Options, parse};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The median time of parsing a text.
fn time(text: &str) -> Duration {
    let least = Duration::from_millis(300);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < 5 || begin.elapsed() < least && times.len() < 100_000 {
        let start = Instant::now();
        black_box(parse(black_box(text), Options::default()).expect("it is correct"));
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

fn print(name: &str, text: &str) {
    let time = time(text);
    let nanoseconds = time.as_nanos() as f64;
    println!(
        "{name:<34} {:>9} bytes {:>11.2} µs {:>7.1} ns a byte {:>6.0} MB/s",
        text.len(),
        nanoseconds / 1e3,
        nanoseconds / text.len() as f64,
        text.len() as f64 * 1e3 / nanoseconds
    );
}

fn main() {
    print("by primary key", "SELECT name, price FROM items WHERE id = 42");
    print("update", "UPDATE accounts SET balance = balance + $1 WHERE id = $2 RETURNING balance");
    print(
        "join and group",
        "SELECT c.name, sum(o.total) FROM customers c JOIN orders o ON o.customer = c.id \
         WHERE o.day BETWEEN date '2024-01-01' AND date '2024-12-31' GROUP BY c.name ORDER BY 2 DESC LIMIT 10",
    );
    let rows = |count: usize| {
        let rows: Vec<String> = (0..count)
            .map(|row| {
                format!("({row}, 'a name of row {row}', {}.25, '2024-02-{:02}')", row * 7, row % 28 + 1)
            })
            .collect();
        format!("INSERT INTO items (id, name, price, day) VALUES {}", rows.join(", "))
    };
    let chain = |link: &'static str| move |count: usize| format!("SELECT 1{}", link.repeat(count));
    let nested = |before: &'static str, after: &'static str| {
        move |count: usize| {
            let one = format!("{}1{}", before.repeat(100), after.repeat(100));
            format!("SELECT {}", vec![one; count].join(", "))
        }
    };
    let union = |count: usize| vec!["SELECT 1"; count + 1].join(" UNION ALL ");
    let joins = |count: usize| {
        let joins: String = (0..count).map(|n| format!(" JOIN t{n} ON a = b")).collect();
        format!("SELECT 1 FROM t{joins}")
    };
    let list = |count: usize| format!("SELECT a IN ({})", vec!["1"; count + 1].join(", "));
    type Make = Box<dyn Fn(usize) -> String>;
    let kinds: [(&str, Make, usize); 11] = [
        ("INSERT of many rows", Box::new(rows), 100),
        ("a chain of +", Box::new(chain(" + 1")), 100),
        ("a chain of OR", Box::new(chain(" OR true")), 100),
        ("a chain of ||", Box::new(chain(" || 'a'")), 100),
        ("a chain of ::", Box::new(chain("::int")), 100),
        ("a chain of IS NULL", Box::new(chain(" IS NULL")), 100),
        ("UNION ALL", Box::new(union), 100),
        ("joins", Box::new(joins), 100),
        ("a list of IN", Box::new(list), 100),
        ("100 parentheses deep", Box::new(nested("(", ")")), 1),
        ("100 casts deep", Box::new(nested("CAST(", " AS int)")), 1),
    ];
    for (name, make, least) in kinds {
        println!();
        for count in [least, least * 10, least * 100] {
            print(&format!("{name}, {count}"), &make(count));
        }
    }
}
