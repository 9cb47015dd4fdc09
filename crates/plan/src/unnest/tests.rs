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
        let shape =
            Shape { size: random.uniform(3, 14), can_fail: random.uniform(0, 3) == 0, dependent: true };
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
        let shape = Shape { size: random.uniform(1, 14), can_fail: true, dependent: true };
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
