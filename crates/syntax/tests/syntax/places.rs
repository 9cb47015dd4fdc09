//! Places: what the nodes of a tree say that they stand for.

use firn_syntax::tree::{ExprKind, QueryBody, Statement, StepKind, Target};
use firn_syntax::{Options, Span, parse, parse_expression, parse_type_name};

#[test]
fn statements_are_cut_out_of_their_text() {
    let text = "  SELECT 'é;' ;; /* x */ BEGIN -- y;\n ; COMMIT AND CHAIN";
    let statements = parse(text, Options::default()).unwrap();
    let texts: Vec<&str> = statements.iter().map(|node| node.span.of(text)).collect();
    assert_eq!(texts, ["SELECT 'é;'", "BEGIN", "COMMIT AND CHAIN"]);
}

#[test]
fn operands_and_operators_know_their_places() {
    let text = "a.b + ( c :: int4 ) IS  NOT NULL AND f( x ) NOT  LIKE 'y'";
    let expr = parse_expression(text, Options::default()).unwrap();
    let ExprKind::And(conditions) = &expr.kind else { panic!("{expr:?}") };
    assert_eq!(expr.span.of(text), text);
    assert_eq!(conditions[0].span.of(text), "a.b + ( c :: int4 ) IS  NOT NULL");
    assert_eq!(conditions[1].span.of(text), "f( x ) NOT  LIKE 'y'");
    let ExprKind::Chain(chain) = &conditions[0].kind else { panic!("{expr:?}") };
    assert_eq!(chain.first.span.of(text), "a.b");
    let places: Vec<&str> = chain.steps.iter().map(|step| step.span.of(text)).collect();
    assert_eq!(places, ["+", "IS"]);
    let StepKind::Binary(_, right) = &chain.steps[0].kind else { panic!("{expr:?}") };
    let ExprKind::Chain(right) = &right.kind else { panic!("{expr:?}") };
    assert_eq!(right.steps[0].span.of(text), "::");
    let StepKind::Cast(type_name) = &right.steps[0].kind else { panic!("{expr:?}") };
    assert_eq!(type_name.span.of(text), "int4");
    let ExprKind::Chain(chain) = &conditions[1].kind else { panic!("{expr:?}") };
    assert_eq!(chain.steps[0].span.of(text), "NOT  LIKE");
}

#[test]
fn names_know_their_places() {
    let text = "SELECT s.\"T\".c AS \"x y\" FROM t";
    let statements = parse(text, Options::default()).unwrap();
    let Statement::Query(query) = &statements[0].statement else { panic!("{statements:?}") };
    let QueryBody::Select(select) = &query.body else { panic!("{query:?}") };
    let Target::Value { value, alias: Some(alias) } = &select.targets[0] else { panic!("{select:?}") };
    let ExprKind::Column(name) = &value.kind else { panic!("{value:?}") };
    let parts: Vec<(&str, &str)> = name.parts().map(|part| (&*part.text, part.span.of(text))).collect();
    assert_eq!(parts, [("s", "s"), ("T", "\"T\""), ("c", "c")]);
    assert_eq!((&*alias.text, alias.span.of(text)), ("x y", "\"x y\""));
    assert_eq!(name.span().of(text), "s.\"T\".c");
}

#[test]
fn trees_compare_without_their_places_and_spans_never_differ() {
    assert_eq!(Span::new(1, 2), Span::new(3, 4));
    let parse = |text| parse_expression(text, Options::default()).unwrap();
    assert_eq!(parse("a+CAST(b AS int)"), parse(" A + ((b::integer)) "));
    assert_ne!(parse("a + b"), parse("a - b"));
    assert_ne!(parse("a + b"), parse("b + a"));
}

#[test]
fn a_text_may_be_one_expression_or_one_type_and_nothing_else() {
    let options = Options::default();
    assert!(parse_expression("1, 2", options).is_err());
    assert!(parse_expression("", options).is_err());
    assert!(parse_expression("SELECT 1", options).is_err());
    assert!(parse_type_name("int[] x", options).is_err());
    assert_eq!(parse_type_name("timestamp(3) with time zone[]", options).unwrap().span, Span::new(0, 29));
    assert_eq!(parse_type_name("é x", options).unwrap_err().position(), Some(3));
}

#[test]
fn backslashes_are_escapes_where_the_setting_says_so() {
    let with = |standard_conforming_strings| Options { standard_conforming_strings, ..Options::default() };
    let value = |text, options| match parse_expression(text, options).unwrap().kind {
        ExprKind::String(value) => value.into_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(r"'a\nb'", with(true)), r"a\nb");
    assert_eq!(value(r"'a\nb\''", with(false)), "a\nb'");
    assert!(parse_expression(r"U&'a'", with(false)).is_err());
}
