//! No text makes the parser panic, and what it accepts prints and parses to the same tree.
#![no_main]

use firn_syntax::{Options, parse, parse_expression, parse_type_name, print};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for standard_conforming_strings in [true, false] {
        let options = Options { standard_conforming_strings, ..Options::default() };
        for node in parse(text, options).unwrap_or_default() {
            let printed = print::statement(&node.statement);
            let again = parse(&printed, options).expect(&printed);
            assert!(again.len() == 1 && again[0] == node, "{printed}");
        }
        let _ = parse_expression(text, options);
        let _ = parse_type_name(text, options);
    }
});
