//! Licences: all our dependencies may be used and distributed under permissive terms.

use crate::metadata::Package;

/// Licences that require no more than attribution.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "bzip2-1.0.6",
];

/// Packages under other terms that were examined one by one, with their licence expression.
const EXCEPTIONS: &[(&str, &str)] = &[
    // Weak copyleft by file; used unmodified.
    ("x509-certificate", "MPL-2.0"),
];

/// Packages that are not clearly permissive, as messages.
pub fn problems(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter_map(|package| {
            let Package { name, version, licence, .. } = package;
            let Some(licence) = licence else { return Some(format!("{name} {version}: names no licence")) };
            let excepted = EXCEPTIONS.contains(&(name, licence));
            (!excepted && !permissive(licence)).then(|| {
                format!("{name} {version}: licence {licence} is not allowed (xtask/src/licences.rs)")
            })
        })
        .collect()
}

/// Whether an SPDX expression can be satisfied with allowed licences. An invalid expression is refused.
fn permissive(expression: &str) -> bool {
    // Before SPDX, cargo read "MIT/Apache-2.0" as a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    either(&mut rest) == Some(true) && rest.is_empty()
}

/// `both (OR both)*`
fn either(words: &mut &[&str]) -> Option<bool> {
    let mut any = both(words)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        any |= both(words)?;
    }
    Some(any)
}

/// `one (AND one)*`
fn both(words: &mut &[&str]) -> Option<bool> {
    let mut all = one(words)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        all &= one(words)?;
    }
    Some(all)
}

/// `( either )`, `licence` or `licence WITH exception`
fn one(words: &mut &[&str]) -> Option<bool> {
    match **words {
        ["(", ref rest @ ..] => {
            *words = rest;
            let inner = either(words)?;
            *words = words.strip_prefix(&[")"])?;
            Some(inner)
        }
        [licence, "WITH", exception, ref rest @ ..] => {
            *words = rest;
            Some(ALLOWED.contains(&format!("{licence} WITH {exception}").as_str()))
        }
        [licence, ref rest @ ..] => {
            *words = rest;
            Some(ALLOWED.contains(&licence))
        }
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_needs_one_permissive_licence_and_a_conjunction_all() {
        for expression in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0-only OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "Apache-2.0 AND (LGPL-2.1-or-later OR ISC)",
        ] {
            assert!(permissive(expression), "{expression}");
        }
        for expression in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "Apache-2.0 WITH GCC-exception-3.1",
            "(MIT",
            "MIT MIT",
        ] {
            assert!(!permissive(expression), "{expression}");
        }
    }
}
