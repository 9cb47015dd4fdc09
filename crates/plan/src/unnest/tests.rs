//! Unnesting compared with evaluating dependent joins row by row.

use super::unnest;
use crate::plan::Plan;
use crate::reference::random::{Shape, random_plan, random_tables};
use crate::reference::{TestFunctions, run};
use crate::text::{parse, print};
use crate::verify::verify;
use firn_base::random::Random;

/// How many random plans each test makes; more with FIRN_PLANS.
fn count(usual: u64) -> u64 {
    std::env::var("FIRN_PLANS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_plans_give_the_same_rows_without_dependent_joins() {
    let (mut compared, mut with_rows, mut failed) = (0, 0, 0);
    let plans = count(3000);
    for seed in 0..plans {
        let mut random = Random::seeded(seed);
        let shape = Shape {
            size: random.uniform(3, 14),
            can_fail: random.uniform(0, 3) == 0,
            dependent: true,
            parameters: false,
        };
        let plan = random_plan(&mut random, shape);
        if let Err(problem) = verify(&plan) {
            panic!("seed {seed}: the generator is wrong: {problem}\n{}", print(&plan));
        }
        let mut flat = plan.clone();
        unnest(&mut flat, &TestFunctions);
        if let Err(problem) = verify(&flat) {
            panic!("seed {seed}: {problem}\n{}\n{}", print(&plan), print(&flat));
        }
        for _ in 0..3 {
            let tables = random_tables(&mut random);
            let expected = match run(&plan, &tables, &[]) {
                Ok(rows) => rows,
                Err(_) => {
                    failed += 1;
                    continue;
                }
            };
            let found = match run(&flat, &tables, &[]) {
                Ok(rows) => rows,
                // Operators of many values at once are too much for it now and then.
                Err(error) if error.state() == firn_base::SqlState::PROGRAM_LIMIT_EXCEEDED => continue,
                Err(error) => panic!("seed {seed}: {error:?}\n{}\n{}", print(&plan), print(&flat)),
            };
            compared += 1;
            with_rows += usize::from(!expected.is_empty());
            assert_eq!(
                sorted(&expected),
                sorted(&found),
                "seed {seed}\n{}\n{}\n{tables:?}",
                print(&plan),
                print(&flat)
            );
        }
    }
    println!("{compared} compared, {with_rows} with rows, {failed} failed");
    assert!(compared * 2 > plans * 3, "{compared} of {plans} plans were compared");
    assert!(with_rows as u64 * 2 > compared, "{with_rows} of {compared} had rows");
}

#[test]
fn plans_are_printed_and_parsed_without_loss() {
    for seed in 0..count(1000) {
        let mut random = Random::seeded(seed);
        let shape = Shape { size: random.uniform(1, 14), can_fail: true, dependent: true, parameters: false };
        let plan = random_plan(&mut random, shape);
        let text = print(&plan);
        let again =
            parse(&text, &TestFunctions).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{text}"));
        assert_eq!(text, print(&again), "seed {seed}");
        assert!(same(&plan, &again), "seed {seed}\n{text}");
    }
}

/// Whether two plans have the same operators in the same places.
fn same(left: &Plan, right: &Plan) -> bool {
    let (left_order, right_order) = (left.post_order(), right.post_order());
    let same_operator = |(left_node, right_node)| {
        // Inputs are other numbers; the text of an operator says all else.
        let text = |plan: &Plan, node| crate::text::operator_line(&plan.columns, &plan[node]);
        text(left, left_node) == text(right, right_node)
    };
    left.output == right.output
        && left_order.len() == right_order.len()
        && left_order.into_iter().zip(right_order).all(same_operator)
}

fn sorted(rows: &[Vec<firn_base::Value>]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

/// Checks that a plan is unnested into another one.
fn becomes(before: &str, after: &str) {
    let mut plan = parse(before, &TestFunctions).expect("the plan is well-formed");
    verify(&plan).expect("the plan is valid");
    unnest(&mut plan, &TestFunctions);
    verify(&plan).expect("the result is valid");
    let lines = |text: &str| -> Vec<String> {
        let least = text.lines().filter(|line| !line.trim().is_empty());
        let indent = least.map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(|line| line[indent..].trim_end().to_owned()).collect()
    };
    let text = print(&plan);
    assert_eq!(lines(&text), lines(after), "\n{text}");
}

#[test]
fn a_correlated_aggregate_is_grouped_by_the_column_that_equals_the_outer_one() {
    // SELECT a FROM t WHERE b > (SELECT sum(d) FROM u WHERE c = a)
    becomes(
        "
        Output [#0 a]
          Filter [(int8(#1 b) > #4 sum)]
            Join single dependent
              Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]
              Group aggregates [#4 sum: int8 := sum(#3 d)]
                Filter [(#2 c = #0 a)]
                  Scan 2 u [#2 c: int4 not null = 1, #3 d: int4 = 2]
        ",
        "
        Output [#0 a]
          Filter [(int8(#1 b) > #4 sum)]
            Join left on [(#0 a is not distinct from #2 c)]
              Scan 1 t [#0 a: int4 = 1, #1 b: int4 = 2]
              Group by [#2 c] aggregates [#4 sum: int8 := sum(#3 d)]
                Filter [(#2 c is not null)]
                  Scan 2 u [#2 c: int4 not null = 1, #3 d: int4 = 2]
        ",
    );
}

#[test]
fn a_count_over_nothing_is_zero() {
    becomes(
        "
        Output [#0, #2]
          Join single dependent
            Scan 1 [#0: int4 = 1]
            Group aggregates [#2: int8 not null := count()]
              Filter [(#1 = #0)]
                Scan 2 [#1: int4 = 1]
        ",
        "
        Output [#0, #2]
          Map [#2: int8 not null := coalesce(#3, 0::int8)]
            Join left on [(#0 is not distinct from #1)]
              Scan 1 [#0: int4 = 1]
              Group by [#1] aggregates [#3: int8 not null := count()]
                Filter [(#1 is not null)]
                  Scan 2 [#1: int4 = 1]
        ",
    );
}

#[test]
fn what_can_fail_sees_only_values_that_are_asked_for() {
    // Without the domain, rows of other values would be divided by zero.
    becomes(
        "
        Output [#0]
          Join semi dependent
            Scan 1 [#0: int4 = 1]
            Filter [((#0 / #2) = 1::int4)]
              Filter [(#1 = #0)]
                Scan 2 [#1: int4 = 1, #2: int4 = 2]
        ",
        "
        Output [#4]
          Shared 0
            Scan 1 [#0: int4 = 1]
            Join semi on [(#4 is not distinct from #3)]
              SharedRead 0 [#4: int4 := #0]
              Filter [((#3 / #2) = 1::int4)]
                Filter [(#1 = #3)]
                  Join inner
                    Group by [#3]
                      SharedRead 0 [#3: int4 := #0]
                    Scan 2 [#1: int4 = 1, #2: int4 = 2]
        ",
    );
}

#[test]
fn a_limit_is_a_row_number_for_each_value() {
    becomes(
        "
        Output [#0, #2]
          Join inner dependent
            Scan 1 [#0: int4 = 1]
            Limit 2::int8 offset 1::int8
              Sort [#2 desc]
                Filter [(#1 = #0)]
                  Scan 2 [#1: int4 not null = 1, #2: int4 = 2]
        ",
        "
        Output [#0, #2]
          Join inner on [(#0 is not distinct from #1)]
            Scan 1 [#0: int4 = 1]
            Filter [(#3 row_number > 1::int8), ((#3 row_number - 1::int8) <= 2::int8)]
              Window partition [#1] order [#2 desc] calls [#3 row_number: int8 not null := row_number()]
                Filter [(#1 is not null)]
                  Scan 2 [#1: int4 not null = 1, #2: int4 = 2]
        ",
    );
}

#[test]
fn a_volatile_right_input_is_evaluated_for_each_row() {
    becomes(
        "
        Output [#1]
          Join single dependent
            Scan 1 [#0: int4 = 1]
            Map [#1: int8 := nextval(5::regclass)]
              Filter [(#0 is not null)]
                Values [] rows [()]
        ",
        "
        Output [#1]
          Shared 0
            Window calls [#2 row_number: int8 not null := row_number()]
              Scan 1 [#0: int4 = 1]
            Join single on [(#6 row_number is not distinct from #4 row_number)]
              SharedRead 0 [#5: int4 := #0, #6 row_number: int8 not null := #2 row_number]
              Map [#1: int8 := nextval(5::regclass)]
                Filter [(#3 is not null)]
                  Join inner
                    SharedRead 0 [#3: int4 := #0, #4 row_number: int8 not null := #2 row_number]
                    Values [] rows [()]
        ",
    );
}

#[test]
fn nested_joins_have_one_domain_with_the_columns_of_both() {
    becomes(
        "
        Output [#0]
          Join anti dependent
            Scan 1 [#0: int4 = 1]
            Join semi dependent
              Filter [(#1 = #0)]
                Scan 2 [#1: int4 = 1, #2: int4 = 2]
              Filter [(#3 = #2), (#4 = #0)]
                Scan 3 [#3: int4 = 1, #4: int4 = 2]
        ",
        "
        Output [#0]
          Join anti on [(#0 is not distinct from #1)]
            Scan 1 [#0: int4 = 1]
            Join semi on [(#1 is not distinct from #4), (#3 = #2)]
              Filter [(#1 is not null)]
                Scan 2 [#1: int4 = 1, #2: int4 = 2]
              Filter [(#4 is not null)]
                Scan 3 [#3: int4 = 1, #4: int4 = 2]
        ",
    );
}

#[test]
fn a_recursion_runs_for_all_values_at_once() {
    becomes(
        "
        Output [#0, #2]
          Join inner dependent
            Scan 1 [#0: int4 = 1]
            Iterate 0 all [#2: int4] initial [#1] step [#4]
              Values [#1: int4] rows [(#0)]
              Map [#4: int4 := (#3 + 1::int4)]
                Filter [(#3 < #0)]
                  IterateRead 0 [#3: int4]
        ",
        "
        Output [#8, #2]
          Shared 0
            Scan 1 [#0: int4 = 1]
            Join inner on [(#8 is not distinct from #5)]
              SharedRead 0 [#8: int4 := #0]
              Iterate 0 all [#2: int4, #5: int4] initial [#1, #6] step [#4, #7]
                Map [#1: int4 := #6]
                  Group by [#6]
                    SharedRead 0 [#6: int4 := #0]
                Map [#4: int4 := (#3 + 1::int4)]
                  Filter [(#3 < #7)]
                    IterateRead 0 [#3: int4, #7: int4]
        ",
    );
}

#[test]
fn equal_numbers_of_other_scales_are_told_apart() {
    // SELECT (SELECT scale(a) FROM u WHERE …): 1.0 and 1.00 are one value to a join and two to scale().
    let text = "
        Output [#0, #2]
          Join single dependent
            Scan 1 [#0: numeric = 4]
            Map [#2: int4 := scale(#0)]
              Filter [(#0 is not null)]
                Values [] rows [()]
    ";
    let mut plan = parse(text, &TestFunctions).expect("the plan is well-formed");
    unnest(&mut plan, &TestFunctions);
    let text = print(&plan);
    assert!(text.contains("row_number()") && !text.contains("Group"), "{text}");
}
