//! Orders compared with the reference, and with what is known to be cheapest.

use super::*;
use crate::operator::SourceId;
use crate::plan::Plan;
use crate::reference::random::{random_joins, random_tables};
use crate::reference::{TestFunctions, run};
use crate::rewrite::testing::{becomes, count, keeps_rows, sorted};
use crate::text::{parse, print};
use crate::verify::verify;
use firn_base::random::Random;

/// Rows by the number of the source.
struct Rows(&'static [f64]);

impl Statistics for Rows {
    fn rows(&self, source: SourceId) -> f64 {
        self.0.get(source.0 as usize).copied().unwrap_or(100.0)
    }

    fn distinct(&self, source: SourceId, attributes: &[i16]) -> Option<f64> {
        attributes.contains(&1).then(|| self.rows(source))
    }
}

const SOME: Rows = Rows(&[0.0, 10.0, 1000.0, 200.0]);

#[test]
fn random_plans_keep_their_rows() {
    keeps_rows(true, |plan| order_joins(plan, &SOME, BUDGET));
}

#[test]
fn trees_of_many_joins_keep_their_rows_in_both_searches() {
    let mut changed = [0, 0];
    let plans = count(2000);
    for seed in 0..plans {
        let mut random = Random::seeded(seed);
        let plan = random_joins(&mut random, 6);
        verify(&plan).expect("the generator is right");
        for (search, budget) in [BUDGET, 0].into_iter().enumerate() {
            let mut after = plan.clone();
            order_joins(&mut after, &SOME, budget);
            if let Err(problem) = verify(&after) {
                panic!("seed {seed}: {problem}\n{}\n{}", print(&plan), print(&after));
            }
            changed[search] += u64::from(print(&plan) != print(&after));
            for _ in 0..2 {
                let tables = random_tables(&mut random);
                let Ok(expected) = run(&plan, &tables, &[]) else { continue };
                let Ok(found) = run(&after, &tables, &[]) else { continue };
                assert_eq!(
                    sorted(&expected),
                    sorted(&found),
                    "seed {seed}\n{}\n{}\n{tables:?}",
                    print(&plan),
                    print(&after)
                );
            }
        }
    }
    println!("{changed:?} of {plans} plans changed");
    assert!(changed.iter().all(|changed| changed * 5 > plans));
}

#[test]
fn small_relations_are_joined_first_and_built_on() {
    becomes(
        |plan| order_joins(plan, &SOME, BUDGET),
        "
        Output [#0]
          Join inner on [(#1 = #3)]
            Join inner on [(#0 = #2)]
              Scan 2 big [#0: int4 = 2, #1: int4 = 3]
              Scan 3 middle [#2: int4 = 1]
            Scan 1 small [#3: int4 = 1]
        ",
        "
        Output [#0]
          Join inner on [(#0 = #2)]
            Scan 3 middle [#2: int4 = 1]
            Join inner on [(#1 = #3)]
              Scan 2 big [#0: int4 = 2, #1: int4 = 3]
              Scan 1 small [#3: int4 = 1]
        ",
    );
}

#[test]
fn a_chain_of_sixty_relations_is_ordered_within_the_budget() {
    let mut lines: Vec<String> = vec!["Output [#0]".to_owned()];
    for level in (1..60).rev() {
        lines.push(format!(
            "{}Join inner on [(#{} = #{})]",
            "  ".repeat(60 - level),
            level * 2 - 1,
            level * 2
        ));
    }
    for relation in 0..60 {
        let depth = if relation == 0 { 60 } else { 61 - relation };
        let (first, second) = (relation * 2, relation * 2 + 1);
        lines.push(format!(
            "{}Scan {} [#{first}: int4 = 1, #{second}: int4 = 2]",
            "  ".repeat(depth),
            relation % 3 + 1
        ));
    }
    let plan: Plan = parse(&lines.join("\n"), &TestFunctions).expect("the plan is well-formed");
    for budget in [BUDGET, 1_000_000] {
        let mut after = plan.clone();
        order_joins(&mut after, &SOME, budget);
        verify(&after).expect("the result is valid");
        assert_ne!(print(&plan), print(&after));
    }
}
