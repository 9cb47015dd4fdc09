//! Rewrites compared with the reference: cases as text, and random plans before and after.

use super::*;
use crate::operator::Operator;
use crate::reference::random::{Shape, random_joins, random_plan, random_tables, random_volatile_plan};
use crate::reference::{TestFunctions, evaluate, run};
use crate::scalar::Scalar;
use crate::statistics::{self, Index, Meaning};
use crate::text::{parse, print};
use crate::verify::verify;
use firn_base::random::Random;

/// Functions over constants, by the reference.
struct Reference;

impl Evaluator for Reference {
    fn call(&self, function: &Function, arguments: &[(Type, Value)], _: Type) -> Result<Value> {
        evaluate(function, arguments.iter().map(|(_, value)| value.clone()).collect())
    }

    fn cast(&self, cast: &Cast, _: Type, value: Value) -> Result<Value> {
        match &cast.function {
            Some(function) => evaluate(function, vec![value]),
            None => Ok(value),
        }
    }
}

/// Sources of a thousand rows.
pub struct Thousand;

impl Statistics for Thousand {
    fn rows(&self, _: crate::operator::SourceId) -> f64 {
        1000.0
    }

    fn distinct(&self, _: crate::operator::SourceId, attributes: &[i16]) -> Option<f64> {
        attributes.contains(&1).then_some(1000.0)
    }

    /// A unique one of its first attribute, and one of the second and third.
    fn indexes(&self, _: crate::operator::SourceId) -> Vec<Index> {
        let index = |attributes: &[i16], unique| Index {
            attributes: attributes.to_vec(),
            descending: vec![false; attributes.len()],
            nulls_first: vec![false; attributes.len()],
            unique,
        };
        vec![index(&[1], false), index(&[2, 3], false)]
    }

    /// Of a source that random tables do not have.
    fn keys(&self, source: crate::operator::SourceId) -> Vec<Vec<i16>> {
        if source.0 == 9 { vec![vec![1]] } else { Vec::new() }
    }
}

/// How many random plans each test makes; more with FIRN_PLANS.
pub fn count(usual: u64) -> u64 {
    std::env::var("FIRN_PLANS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual)
}

/// Rows as text, in an order.
pub fn sorted(rows: &[Vec<Value>]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

/// Checks that random plans give the same rows before and after a rewrite, and that it changes some. With
/// `flat` dependent joins are removed before.
pub fn keeps_rows(flat: bool, rewrite: impl FnMut(&mut Plan)) {
    keeps_rows_of(flat, 50, rewrite);
}

/// As [`keeps_rows`]; one of so many plans at least must be changed.
fn keeps_rows_of(flat: bool, of: u64, mut rewrite: impl FnMut(&mut Plan)) {
    let (mut compared, mut with_rows, mut changed) = (0, 0, 0);
    let plans = count(1500);
    for seed in 0..plans {
        let mut random = Random::seeded(seed);
        let shape = Shape {
            size: random.uniform(2, 14),
            can_fail: random.uniform(0, 3) == 0,
            dependent: true,
            parameters: true,
        };
        let mut plan = random_plan(&mut random, shape);
        if flat {
            unnest(&mut plan, &TestFunctions);
        }
        if random.uniform(0, 2) == 0 {
            // Only a part of the columns is wanted.
            plan.output.retain(|_| random.uniform(0, 2) == 0);
        }
        let mut after = plan.clone();
        rewrite(&mut after);
        if let Err(problem) = verify(&after) {
            panic!("seed {seed}: {problem}\n{}\n{}", print(&plan), print(&after));
        }
        changed += u64::from(print(&plan) != print(&after));
        for _ in 0..3 {
            let tables = random_tables(&mut random);
            let mut parameter = || match random.uniform(0, 3) {
                0 => Value::Null,
                value => Value::Integer(value as i32),
            };
            let parameters = [parameter(), parameter()];
            let Ok(expected) = run(&plan, &tables, &parameters) else { continue };
            let found = run(&after, &tables, &parameters).unwrap_or_else(|error| {
                panic!("seed {seed}: {error:?}\n{}\n{}", print(&plan), print(&after))
            });
            compared += 1;
            with_rows += u64::from(!expected.is_empty());
            assert_eq!(
                sorted(&expected),
                sorted(&found),
                "seed {seed}\n{}\n{}\n{tables:?}",
                print(&plan),
                print(&after)
            );
        }
    }
    println!("{compared} compared, {with_rows} with rows, {changed} of {plans} plans changed");
    assert!(compared > plans && with_rows * 2 > compared && changed * of > plans);
}

/// Checks that a rewrite makes one plan of another.
pub fn becomes(rewrite: impl FnOnce(&mut Plan), before: &str, after: &str) {
    let mut plan = parse(before, &TestFunctions).expect("the plan is well-formed");
    verify(&plan).expect("the plan is valid");
    rewrite(&mut plan);
    verify(&plan).expect("the result is valid");
    let lines = |text: &str| -> Vec<String> {
        let filled = || text.lines().filter(|line| !line.trim().is_empty());
        let indent = filled().map(|line| line.len() - line.trim_start().len()).min().unwrap_or(0);
        filled().map(|line| line[indent..].trim_end().to_owned()).collect()
    };
    let text = print(&plan);
    assert_eq!(lines(&text), lines(after), "\n{text}");
}

#[test]
fn plans_of_many_levels_fit_a_stack_of_one_mebibyte() {
    let levels = 200;
    let mut text = vec!["Output [#0]".to_owned()];
    for level in 0..levels {
        let indent = "  ".repeat(level + 1);
        let (own, next) = (level * 2, level * 2 + 1);
        text.push(match level % 4 {
            0 => format!("{indent}Filter [(#0 = #0)]"),
            1 => format!("{indent}Map [#{own}: int4 := (#0 + 1::int4)]"),
            2 => format!("{indent}Sort [#0]"),
            _ => format!("{indent}Join semi dependent on [(#0 = #{next})]"),
        });
    }
    text.push(format!("{}Scan 1 [#0: int4 = 1]", "  ".repeat(levels + 1)));
    for level in (0..levels).rev().filter(|level| level % 4 == 3) {
        let next = level * 2 + 1;
        let indent = "  ".repeat(level + 2);
        text.push(format!("{indent}Scan 2 [#{next}: int4 = 1] where [(#{next} = #0)]"));
    }
    let text = text.join("\n");
    let run = move || {
        let mut plan = parse(&text, &TestFunctions).expect("the plan is well-formed");
        optimise(&mut plan, &TestFunctions, &Reference, &Thousand);
        assert!(plan.depth() > 50);
    };
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(run).expect("threads start");
    thread.join().expect("it does not overflow");
}

#[test]
fn folding_keeps_rows() {
    keeps_rows(false, |plan| fold::fold(plan, &Reference));
}

#[test]
fn null_rejection_keeps_rows() {
    keeps_rows(false, outer_joins::reject_nulls);
}

#[test]
fn pushing_down_keeps_rows() {
    keeps_rows(true, push_down::push_down);
}

#[test]
fn pushing_down_below_dependent_joins_keeps_rows() {
    keeps_rows(false, push_down::push_down);
}

#[test]
fn removing_what_is_empty_keeps_rows() {
    keeps_rows(true, |plan| {
        fold::fold(plan, &Reference);
        contradictions::remove_empty(plan);
    });
}

#[test]
fn pruning_keeps_rows() {
    keeps_rows(true, |plan| prune::prune(plan, &Thousand));
}

#[test]
fn all_rewrites_keep_rows() {
    keeps_rows(false, |plan| optimise(plan, &TestFunctions, &Reference, &Thousand));
}

/// A volatile function is called for the same rows, and once for each.
#[test]
fn all_rewrites_keep_the_calls_of_volatile_functions() {
    let (mut compared, mut with_rows) = (0, 0);
    let plans = count(1500);
    for seed in 0..plans {
        let mut random = Random::seeded(seed);
        let shape = Shape { size: random.uniform(2, 8), can_fail: false, dependent: true, parameters: false };
        let plan = random_volatile_plan(&mut random, shape);
        verify(&plan).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{}", print(&plan)));
        let mut after = plan.clone();
        optimise(&mut after, &TestFunctions, &Reference, &Thousand);
        for _ in 0..3 {
            let tables = random_tables(&mut random);
            let Ok(expected) = run(&plan, &tables, &[]) else { continue };
            let Ok(found) = run(&after, &tables, &[]) else { continue };
            compared += 1;
            with_rows += u64::from(!expected.is_empty());
            assert_eq!(
                sorted(&expected),
                sorted(&found),
                "seed {seed}\n{}\n{}\n{tables:?}",
                print(&plan),
                print(&after)
            );
        }
    }
    println!("{compared} compared, {with_rows} with rows");
    assert!(compared > plans && with_rows * 2 > compared);
}

/// Source 1 is small, others are not; an attribute has as many values as there are rows.
struct Small;

impl Statistics for Small {
    fn rows(&self, source: crate::operator::SourceId) -> f64 {
        if source.0 == 1 { 10.0 } else { 100_000.0 }
    }

    fn distinct(&self, source: crate::operator::SourceId, _: &[i16]) -> Option<f64> {
        Some(self.rows(source))
    }
}

#[test]
fn reducing_groups_keeps_rows() {
    keeps_rows_of(true, 400, |plan| reductions::reduce_groups(plan, &Small));
}

#[test]
fn a_group_is_made_of_the_rows_that_a_join_asks_for() {
    becomes(
        |plan| reductions::reduce_groups(plan, &Small),
        "
        Output [#0, #4]
          Filter [(#4 > 1::int8)]
            Join left on [(#1 = #2)]
              Scan 1 [#0: int4 = 1, #1: int4 = 2]
              Filter [(#4 > 0::int8)]
                Group by [#2] aggregates [#4: int8 := sum(#3)]
                  Scan 2 [#2: int4 = 1, #3: int4 = 2]
        ",
        "
        Output [#5, #4]
          Filter [(#4 > 1::int8)]
            Shared 0
              Scan 1 [#0: int4 = 1, #1: int4 = 2]
              Join left on [(#6 = #2)]
                SharedRead 0 [#5: int4 := #0, #6: int4 := #1]
                Filter [(#4 > 0::int8)]
                  Group by [#2] aggregates [#4: int8 := sum(#3)]
                    Join semi on [(#7 = #2)]
                      Scan 2 [#2: int4 = 1, #3: int4 = 2]
                      SharedRead 0 [#7: int4 := #1]
        ",
    );
    // The first rows of each partition, as LIMIT in a dependent sub-query has them.
    becomes(
        |plan| reductions::reduce_groups(plan, &Small),
        "
        Output [#0, #3]
          Join inner on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
            Filter [(#4 <= 3::int8)]
              Window partition [#2] order [#3 desc] calls [#4: int8 not null := row_number()]
                Scan 2 [#2: int4 = 1, #3: int4 = 2]
        ",
        "
        Output [#5, #3]
          Shared 0
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
            Join inner on [(#6 = #2)]
              SharedRead 0 [#5: int4 := #0, #6: int4 := #1]
              Filter [(#4 <= 3::int8)]
                Window partition [#2] order [#3 desc] calls [#4: int8 not null := row_number()]
                  Join semi on [(#7 = #2)]
                    Scan 2 [#2: int4 = 1, #3: int4 = 2]
                    SharedRead 0 [#7: int4 := #1]
        ",
    );
    // As many left rows as groups: it does not pay.
    let same = |text: &str| becomes(|plan| reductions::reduce_groups(plan, &Small), text, text);
    same(
        "
        Output [#0, #4]
          Join left on [(#1 = #2)]
            Scan 2 [#0: int4 = 1, #1: int4 = 2]
            Group by [#2] aggregates [#4: int8 := sum(#3)]
              Scan 2 [#2: int4 = 1, #3: int4 = 2]
        ",
    );
}

#[test]
fn using_marks_keeps_rows() {
    keeps_rows_of(false, 50, semi_joins::use_marks);
}

#[test]
fn comparing_by_equality_keeps_rows() {
    keeps_rows_of(true, 50, |plan| equalities::use_equality(plan, &TestFunctions));
}

#[test]
fn what_is_never_null_is_compared_by_equality() {
    becomes(
        |plan| equalities::use_equality(plan, &TestFunctions),
        "
        Output [#0, #3]
          Join mark #3: bool not null on [(#0 is not distinct from #4), (#5 is not distinct from #5)]
            Join inner on [(#0 is not distinct from #1), (#2 is not distinct from #1)]
              Scan 1 [#0: int4 = 1, #2: int4 = 2]
              Scan 2 [#1: int4 not null = 1]
            Scan 2 [#4: int4 = 1, #5: int4 not null = 2]
        ",
        "
        Output [#0, #3]
          Join mark #3: bool not null on [(#0 is not distinct from #4), (#5 = #5)]
            Join inner on [(#0 = #1), (#2 = #1)]
              Scan 1 [#0: int4 = 1, #2: int4 = 2]
              Scan 2 [#1: int4 not null = 1]
            Scan 2 [#4: int4 = 1, #5: int4 not null = 2]
        ",
    );
}

#[test]
fn a_mark_that_chooses_rows_makes_a_semi_or_an_anti_join() {
    becomes(
        semi_joins::use_marks,
        "
        Output [#0]
          Filter [#1]
            Join mark #1: bool on [(#0 = #2)]
              Filter [(#0 > 1::int4), (not #3)]
                Join mark dependent #3: bool not null
                  Scan 1 [#0: int4 = 1]
                  Scan 2 [#4: int4 = 1] where [(#4 = #0)]
              Scan 2 [#2: int4 = 1]
        ",
        "
        Output [#0]
          Join semi on [(#0 = #2)]
            Filter [(#0 > 1::int4)]
              Join anti dependent
                Scan 1 [#0: int4 = 1]
                Scan 2 [#4: int4 = 1] where [(#4 = #0)]
            Scan 2 [#2: int4 = 1]
        ",
    );
    // NULL is not FALSE; and a mark that is wanted for more is computed.
    let same = |text: &str| becomes(semi_joins::use_marks, text, text);
    same(
        "
        Output [#0]
          Filter [(not #1)]
            Join mark #1: bool on [(#0 = #2)]
              Scan 1 [#0: int4 = 1]
              Scan 2 [#2: int4 = 1]
        ",
    );
    same(
        "
        Output [#1]
          Filter [#1]
            Join mark #1: bool on [(#0 = #2)]
              Scan 1 [#0: int4 = 1]
              Scan 2 [#2: int4 = 1]
        ",
    );
}

#[test]
fn merging_windows_keeps_rows() {
    keeps_rows_of(true, 500, windows::merge_windows);
}

#[test]
fn limiting_windows_keeps_rows() {
    keeps_rows_of(true, 100, first_rows::limit_windows);
}

#[test]
fn folding_takes_out_of_alternatives_what_all_of_them_ask() {
    becomes(
        |plan| fold::fold(plan, &Reference),
        "
        Output [#0]
          Filter [(((#0 = #1) and (#0 > 1::int4)) or ((#0 > 2::int4) and (#0 = #1))), ((#1 = 3::int4) or ((#1 = 3::int4) and (#0 = 4::int4)))]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
        "
        Output [#0]
          Filter [(#0 = #1), ((#0 > 1::int4) or (#0 > 2::int4)), (#1 = 3::int4)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
    );
    // What can fail is asked where it was.
    becomes(
        |plan| fold::fold(plan, &Reference),
        "
        Output [#0]
          Filter [(((#0 = 0::int4) and ((1::int4 / #1) = 1::int4)) or ((#0 = 1::int4) and ((1::int4 / #1) = 1::int4)))]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
        "
        Output [#0]
          Filter [(((#0 = 0::int4) and ((1::int4 / #1) = 1::int4)) or ((#0 = 1::int4) and ((1::int4 / #1) = 1::int4)))]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
    );
}

#[test]
fn constants_are_folded_and_errors_stay() {
    becomes(
        |plan| fold::fold(plan, &Reference),
        "
        Output [#1, #2]
          Map [#1: int4 := (1::int4 + 2::int4), #2: int4 := case when (#0 = 0::int4) then (1::int4 / 0::int4) else 1::int4 end]
            Filter [((#0 > 1::int4) and true and (#0 < (2::int4 + 3::int4)))]
              Scan 1 [#0: int4 = 1]
        ",
        "
        Output [#1, #2]
          Map [#1: int4 := 3::int4, #2: int4 := case when (#0 = 0::int4) then (1::int4 / 0::int4) else 1::int4 end]
            Filter [(#0 > 1::int4), (#0 < 5::int4)]
              Scan 1 [#0: int4 = 1]
        ",
    );
}

#[test]
fn an_outer_join_below_a_comparison_of_its_right_side_is_an_inner_join() {
    becomes(
        outer_joins::reject_nulls,
        "
        Output [#0]
          Filter [(#1 > 1::int4)]
            Join left on [(#0 = #1)]
              Scan 1 [#0: int4 = 1]
              Join full on [(#1 = #2)]
                Scan 2 [#1: int4 = 1]
                Scan 3 [#2: int4 = 1]
        ",
        "
        Output [#0]
          Filter [(#1 > 1::int4)]
            Join inner on [(#0 = #1)]
              Scan 1 [#0: int4 = 1]
              Join left on [(#1 = #2)]
                Scan 2 [#1: int4 = 1]
                Scan 3 [#2: int4 = 1]
        ",
    );
}

#[test]
fn conditions_go_down_and_what_can_fail_stays_above_the_join() {
    becomes(
        push_down::push_down,
        "
        Output [#0]
          Filter [((#0 / #1) = 1::int4), (#0 = #2), (#2 > 1::int4), (#3 = 2::int4)]
            Map [#3: int4 := (#1 + 1::int4)]
              Join inner
                Scan 1 [#0: int4 = 1, #1: int4 = 2]
                Scan 2 [#2: int4 = 1]
        ",
        "
        Output [#0]
          Filter [((#0 / #1) = 1::int4)]
            Map [#3: int4 := (#1 + 1::int4)]
              Join inner on [(#0 = #2)]
                Scan 1 [#0: int4 = 1, #1: int4 = 2] where [((#1 + 1::int4) = 2::int4), (#0 > 1::int4)]
                Scan 2 [#2: int4 = 1] where [(#2 > 1::int4)]
        ",
    );
}

/// An equality of two columns of one side leads nowhere on the other side.
#[test]
fn an_equality_within_the_left_side_says_nothing_about_the_right_one() {
    becomes(
        push_down::push_down,
        "
        Output [#0]
          Filter [(#0 > 4::int4)]
            Join left on [(#0 = #1)]
              Scan 1 [#0: int4 = 1, #1: int4 = 3]
              Scan 2 [#2: int4 = 1]
        ",
        "
        Output [#0]
          Join left on [(#0 = #1)]
            Scan 1 [#0: int4 = 1, #1: int4 = 3] where [(#0 > 4::int4)]
            Scan 2 [#2: int4 = 1]
        ",
    );
}

#[test]
fn a_comparison_holds_for_the_equal_column_of_the_other_side() {
    becomes(
        push_down::push_down,
        "
        Output [#0]
          Filter [(#0 = 5::int4)]
            Join left on [(#0 = #1)]
              Scan 1 [#0: int4 = 1]
              Scan 2 [#1: int4 = 1]
        ",
        "
        Output [#0]
          Join left on [(#0 = #1)]
            Scan 1 [#0: int4 = 1] where [(#0 = 5::int4)]
            Scan 2 [#1: int4 = 1] where [(#1 = 5::int4)]
        ",
    );
}

#[test]
fn a_contradiction_empties_what_needs_its_rows() {
    becomes(
        contradictions::remove_empty,
        "
        Output [#0, #1]
          Join left on [(#0 = #1)]
            Scan 1 [#0: int4 = 1]
            Filter [false]
              Scan 2 [#1: int4 not null = 1]
        ",
        "
        Output [#0, #1]
          Map [#1: int4 := null::int4]
            Scan 1 [#0: int4 = 1]
        ",
    );
}

#[test]
fn columns_that_nothing_uses_are_not_produced() {
    becomes(
        |plan| prune::prune(plan, &Thousand),
        "
        Output [#0]
          Map [#4: int4 := (#1 / 0::int4)]
            Join mark #5: bool on [(#0 = #2)]
              Scan 1 [#0: int4 = 1, #1: int4 = 2]
              Scan 2 [#2: int4 = 1, #3: int4 = 2]
        ",
        "
        Output [#0]
          Scan 1 [#0: int4 = 1]
        ",
    );
}

#[test]
fn keys_are_used_to_keep_rows() {
    keeps_rows(true, |plan| unique::use_keys(plan, &Thousand));
}

#[test]
fn a_left_join_with_a_key_is_removed_if_only_left_rows_are_needed() {
    becomes(
        |plan| prune::prune(plan, &Thousand),
        "
        Output [#0]
          Join left on [(#0 = #1)]
            Scan 1 [#0: int4 = 1]
            Scan 9 [#1: int4 not null = 1, #2: int4 = 2]
        ",
        "
        Output [#0]
          Scan 1 [#0: int4 = 1]
        ",
    );
}

#[test]
fn distinct_rows_are_not_grouped_and_keys_end_an_order() {
    becomes(
        |plan| unique::use_keys(plan, &Thousand),
        "
        Output [#1, #2]
          Sort [#2, #1 desc, #3]
            Group by [#1, #2, #3]
              Join inner on [(#2 = #0)]
                Scan 9 [#1: int4 not null = 1, #2: int4 = 2]
                Map [#3: int4 not null := 1::int4]
                  Scan 9 [#0: int4 not null = 1]
        ",
        "
        Output [#1, #2]
          Sort [#2, #1 desc]
            Join inner on [(#2 = #0)]
              Scan 9 [#1: int4 not null = 1, #2: int4 = 2]
              Map [#3: int4 not null := 1::int4]
                Scan 9 [#0: int4 not null = 1]
        ",
    );
}

/// A join of few rows with a source that has an index looks its rows up, whichever side is the small one.
#[test]
fn a_small_side_is_joined_by_an_index_of_the_other() {
    becomes(
        |plan| join_methods::choose_methods(plan, &Thousand),
        "
        Output [#0, #3]
          Join inner on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]
        ",
        "
        Output [#0, #3]
          Join inner by [2] on [(#1 = #2)]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
    );
    // An outer join keeps its sides; a constant fixes a part of the key, the left row the other one.
    becomes(
        |plan| join_methods::choose_methods(plan, &Thousand),
        "
        Output [#0, #3]
          Join left on [(#1 = #2)]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]
            Scan 1 [#0: int4 = 3, #1: int4 = 2] where [(#0 = $1::int4)]
        ",
        "
        Output [#0, #3]
          Join left by [2, 3] on [(#1 = #2)]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]
            Scan 1 [#0: int4 = 3, #1: int4 = 2] where [(#0 = $1::int4)]
        ",
    );
}

/// The right side of a semi join finds the rows of a scan on the left: each of its keys once.
#[test]
fn a_semi_join_with_few_keys_looks_their_rows_up() {
    becomes(
        |plan| join_methods::choose_methods(plan, &Thousand),
        "
        Output [#0]
          Join semi on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4), (1::int4, 3::int4)]
        ",
        "
        Output [#0]
          Join inner by [2] on [(#1 = #2)]
            Group by [#2]
              Values [#2: int4, #3: int4] rows [(1::int4, 2::int4), (1::int4, 3::int4)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
    );
    // More is asked than equal keys, and a row that the scan finds by an index of its own needs no other.
    let after = "
        Output [#0]
          Join semi build left on [(#1 = #2), (#0 < #3)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2] where [(#0 = 7::int4)]
            Scan 2 [#2: int4 = 3, #3: int4 = 4]
        ";
    becomes(|plan| join_methods::choose_methods(plan, &Thousand), &after.replace(" build left", ""), after);
    let same = |text: &str| becomes(|plan| join_methods::choose_methods(plan, &Thousand), text, text);
    same(
        "
        Output [#0]
          Join anti on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
            Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]
        ",
    );
}

#[test]
fn what_an_index_does_not_help_is_joined_by_hashing() {
    let same = |text: &str| becomes(|plan| join_methods::choose_methods(plan, &Thousand), text, text);
    // Many rows on both sides.
    same(
        "
        Output [#0]
          Join inner on [(#0 = #1)]
            Scan 1 [#0: int4 = 1]
            Scan 2 [#1: int4 = 1]
        ",
    );
    // No index begins with that attribute; a mark needs rows that an index does not find.
    same(
        "
        Output [#0]
          Join single on [(#0 = #1)]
            Values [#0: int4] rows [(1::int4)]
            Scan 2 [#1: int4 = 3]
        ",
    );
    same(
        "
        Output [#2]
          Join mark #2: bool on [(#0 = #1)]
            Values [#0: int4] rows [(1::int4)]
            Scan 2 [#1: int4 = 1]
        ",
    );
    // NULL is found by no key.
    same(
        "
        Output [#0]
          Join single on [(#0 is not distinct from #1)]
            Values [#0: int4] rows [(null::int4)]
            Scan 2 [#1: int4 = 1]
        ",
    );
}

#[test]
fn a_small_left_side_is_kept_and_the_right_one_read_along_it() {
    for kind in ["left", "semi", "anti"] {
        let before = format!(
            "
            Output [#0]
              Join {kind} on [(#0 = #1), (#0 < #2)]
                Values [#0: int4] rows [(1::int4)]
                Scan 2 [#1: int4 = 3, #2: int4 = 4]
            "
        );
        let after = before.replace(kind, &format!("{kind} build left"));
        becomes(|plan| join_methods::choose_methods(plan, &Thousand), &before, &after);
    }
    // Without an equality all pairs are compared anyway.
    let same = |text: &str| becomes(|plan| join_methods::choose_methods(plan, &Thousand), text, text);
    same(
        "
        Output [#0]
          Join semi on [(#0 < #1)]
            Values [#0: int4] rows [(1::int4)]
            Scan 2 [#1: int4 = 3]
        ",
    );
}

#[test]
fn common_expressions_keep_rows() {
    keeps_rows_of(true, 100, common::share_expressions);
}

#[test]
fn what_aggregates_have_in_common_is_computed_once() {
    becomes(
        common::share_expressions,
        "
        Output [#2, #3]
          Group by [#1] aggregates [#2: int8 := sum((#0 * (1::int4 - #1))), #3: int8 := sum((#0 * (1::int4 - #1) * (1::int4 + #1)))]
            Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
        "
        Output [#2, #3]
          Group by [#1] aggregates [#2: int8 := sum(#4), #3: int8 := sum((#4 * (1::int4 + #1)))]
            Map [#4: int4 := (#0 * (1::int4 - #1))]
              Scan 1 [#0: int4 = 1, #1: int4 = 2]
        ",
    );
    // What can fail stays in its branches, and what no row needs surely is not computed for all.
    let same = |text: &str| becomes(common::share_expressions, text, text);
    same(
        "
        Output [#1, #2]
          Map [#1: int4 := (#0 / 2::int4), #2: int4 := ((#0 / 2::int4) + 1::int4)]
            Scan 1 [#0: int4 = 1]
        ",
    );
    same(
        "
        Output [#1]
          Map [#1: int4 := case when (#0 > 1::int4) then (#0 * 3::int4) when (#0 > 0::int4) then ((#0 * 3::int4) + 1::int4) else 0::int4 end]
            Scan 1 [#0: int4 = 1]
        ",
    );
}

/// Each row of sources 1 and 3 refers with its third attribute to the first one of source 2.
struct Referring;

impl Statistics for Referring {
    fn rows(&self, _: crate::operator::SourceId) -> f64 {
        1000.0
    }

    fn distinct(&self, _: crate::operator::SourceId, _: &[i16]) -> Option<f64> {
        None
    }

    fn relation(&self, source: crate::operator::SourceId) -> Option<u32> {
        Some(source.0)
    }

    fn references(&self, source: crate::operator::SourceId) -> Vec<statistics::Reference> {
        match source.0 {
            2 => Vec::new(),
            _ => vec![statistics::Reference { attributes: vec![3], relation: 2, referenced: vec![1] }],
        }
    }
}

/// Random joins of tables with foreign keys, of which few columns are wanted.
#[test]
fn removing_joins_by_foreign_keys_keeps_rows() {
    let (mut changed, mut with_rows) = (0, 0);
    let plans = count(3000);
    for seed in 0..plans {
        let mut random = Random::seeded(seed);
        let mut plan = random_joins(&mut random, 4);
        plan.output.retain(|_| random.uniform(0, 3) == 0);
        let mut after = plan.clone();
        references::remove_joins(&mut after, &Referring);
        verify(&after).unwrap_or_else(|problem| panic!("seed {seed}: {problem}"));
        if print(&plan) == print(&after) {
            continue;
        }
        changed += 1;
        for _ in 0..3 {
            let mut tables = random_tables(&mut random);
            let parents = tables.get_mut(&crate::operator::SourceId(2)).expect("there are three");
            for (number, row) in parents.iter_mut().enumerate() {
                row[0] = Value::Integer(number as i32);
            }
            let parents = parents.len() as i64;
            for source in [1, 3] {
                for row in tables.get_mut(&crate::operator::SourceId(source)).expect("there are three") {
                    row[2] = match random.uniform(0, 3) {
                        0 => Value::Null,
                        _ if parents == 0 => Value::Null,
                        _ => Value::Integer(random.uniform(0, parents - 1) as i32),
                    };
                }
            }
            let expected = run(&plan, &tables, &[]).expect("nothing can fail");
            let found = run(&after, &tables, &[]).expect("nothing can fail");
            with_rows += u64::from(!expected.is_empty());
            assert_eq!(
                sorted(&expected),
                sorted(&found),
                "seed {seed}\n{}\n{}\n{tables:?}",
                print(&plan),
                print(&after)
            );
        }
    }
    println!("{changed} of {plans} plans changed, {with_rows} with rows");
    assert!(changed * 200 > plans && with_rows * 2 > changed);
}

#[test]
fn a_join_with_a_referenced_row_is_removed() {
    becomes(
        |plan| references::remove_joins(plan, &Referring),
        "
        Output [#0]
          Join inner on [(#2 = #1)]
            Scan 2 [#2: int4 not null = 1]
            Scan 1 [#0: int4 = 1, #1: int4 = 3]
        ",
        "
        Output [#0]
          Filter [(#1 is not null)]
            Scan 1 [#0: int4 = 1, #1: int4 = 3]
        ",
    );
    becomes(
        |plan| references::remove_joins(plan, &Referring),
        "
        Output [#0]
          Join semi on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 not null = 3]
            Scan 2 [#2: int4 not null = 1]
        ",
        "
        Output [#0]
          Scan 1 [#0: int4 = 1, #1: int4 not null = 3]
        ",
    );
    // One that more is asked of, and one whose columns are used.
    let same = |text: &str| becomes(|plan| references::remove_joins(plan, &Referring), text, text);
    same(
        "
        Output [#0]
          Join semi on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 not null = 3]
            Scan 2 [#2: int4 not null = 1] where [(#2 > 1::int4)]
        ",
    );
    same(
        "
        Output [#2]
          Join inner on [(#1 = #2)]
            Scan 1 [#0: int4 = 1, #1: int4 not null = 3]
            Scan 2 [#2: int4 not null = 1]
        ",
    );
}

#[test]
fn windows_with_one_order_are_one() {
    becomes(
        windows::merge_windows,
        "
        Output [#1, #2]
          Window order [#0] calls [#2: int8 not null := row_number()]
            Window order [#0] calls [#1: int8 not null := rank()]
              Scan 1 [#0: int4 = 1]
        ",
        "
        Output [#1, #2]
          Window order [#0] calls [#1: int8 not null := rank(), #2: int8 not null := row_number()]
            Scan 1 [#0: int4 = 1]
        ",
    );
}

/// Sources that compute, for their indexes, the sum of their first two attributes, and which rows have a third one above 5.
struct Computing;

impl Statistics for Computing {
    fn rows(&self, _: crate::operator::SourceId) -> f64 {
        1000.0
    }

    fn distinct(&self, _: crate::operator::SourceId, _: &[i16]) -> Option<f64> {
        None
    }

    fn indexes(&self, _: crate::operator::SourceId) -> Vec<Index> {
        vec![Index { attributes: vec![4], descending: vec![false], nulls_first: vec![false], unique: true }]
    }

    fn computed(&self, source: crate::operator::SourceId) -> Vec<statistics::Computed> {
        // The expressions are those of a plan of their own.
        let text = "Output [#0]\n  Scan 1 [#0: int4 = 1, #1: int4 = 2, #2: int4 = 3] \
            where [((#0 + #1) = 0::int4), (#2 > 5::int4), (#1 is not null)]";
        let plan = parse(text, &TestFunctions).expect("the plan is well-formed");
        let Operator::Scan(scan) = &plan[plan.post_order()[0]] else { panic!("it is a scan") };
        let Scalar::Call(call) = &scan.conditions[0] else { panic!("it is a comparison") };
        let computed = |attribute, ty, meaning| statistics::Computed {
            attribute,
            ty: Type::new(ty),
            name: "computed".into(),
            inputs: scan.columns.clone(),
            meaning,
        };
        let members = scan.conditions[1..].to_vec();
        match source.0 {
            1 => vec![
                computed(8, firn_base::TypeId::INT4, Meaning::Value(call.arguments[0].clone())),
                computed(9, firn_base::TypeId::BOOL, Meaning::Member(members)),
            ],
            _ => Vec::new(),
        }
    }
}

#[test]
fn conditions_ask_computed_columns_for_what_they_are_computed_of() {
    let ask = |plan: &mut Plan| computed::use_computed(plan, &TestFunctions, &Reference, &Computing);
    becomes(
        ask,
        "
        Output [#0]
          Scan 1 [#1: int4 = 2, #0: int4 = 1] where [((#0 + #1) > 3::int4), ((#1 + #0) = 7::int4)]
        ",
        "
        Output [#0]
          Scan 1 [#1: int4 = 2, #0: int4 = 1, #2 computed: int4 = 8] where [(#2 computed > 3::int4), ((#1 + #0) = 7::int4)]
        ",
    );
    // Of another source, and of other columns.
    let same = |text: &str| becomes(ask, text, text);
    same(
        "
        Output [#0]
          Scan 2 [#0: int4 = 1, #1: int4 = 2] where [((#0 + #1) = 3::int4)]
        ",
    );
    same(
        "
        Output [#0]
          Scan 1 [#0: int4 = 1, #1: int4 = 3] where [((#0 + #1) = 3::int4)]
        ",
    );
}

#[test]
fn conditions_that_imply_those_of_a_partial_index_ask_for_its_rows() {
    let ask = |plan: &mut Plan| computed::use_computed(plan, &TestFunctions, &Reference, &Computing);
    let plan = |conditions: &str, added: &str| {
        let added_column = if added.is_empty() { "" } else { ", #4 computed: bool = 9" };
        format!(
            "Output [#0]\n  Scan 1 [#0: int4 = 1, #1: int4 = 2, #2: int4 = 3, #3: int4 = 4{added_column}] where [{conditions}{added}]"
        )
    };
    for (conditions, implies) in [
        ("(#2 > 5::int4), (#1 is not null)", true),
        ("(#2 > 5::int4), (#1 = 1::int4)", true),
        ("(#2 > 6::int4), (#1 < #0)", true),
        ("(7::int4 < #2), (#1 <> 1::int4)", true),
        ("(#2 >= 6::int4), ((#1 + #0) = 1::int4)", true),
        ("(#2 = 6::int4), (#1 = 1::int4)", true),
        ("((#2 = 6::int4) or (#2 > 9::int4)), (#1 = 1::int4)", true),
        ("(#2 > $1::int4), (#1 = 1::int4)", false),
        ("(#2 >= 5::int4), (#1 = 1::int4)", false),
        ("(#2 = 5::int4), (#1 = 1::int4)", false),
        ("(#2 < 6::int4), (#1 = 1::int4)", false),
        ("(#2 <> 4::int4), (#1 = 1::int4)", false),
        ("((#2 = 6::int4) or (#0 > 9::int4)), (#1 = 1::int4)", false),
        ("(#2 > 5::int4), (#1 is null)", false),
        ("(#2 > 5::int4), (#0 = 1::int4)", false),
        ("(#0 > 5::int4), (#1 is not null)", false),
        // The key of a unique index finds no more rows.
        ("(#2 > 5::int4), (#1 = 1::int4), (#3 = 1::int4)", false),
    ] {
        let added = if implies { ", (#4 computed = true)" } else { "" };
        becomes(ask, &plan(conditions, ""), &plan(conditions, added));
    }
}
