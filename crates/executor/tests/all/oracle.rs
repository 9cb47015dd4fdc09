//! Random plans over small random tables, compared with the interpreter of plans.

use crate::registry::restart_numbers;
use crate::support::{Indexed, MODES, index_attributes, multiset, options, run, sources};
use firn_base::SqlState;
use firn_base::disk::SimulatedDisk;
use firn_base::random::Random;
use firn_executor::{Options, SpillArea};
use firn_plan::operator::{JoinMethod, SourceId};
use firn_plan::reference::random::{Shape, random_joins, random_plan, random_tables, random_volatile_plan};
use firn_plan::reference::{TestFunctions, run as interpret};
use firn_plan::rewrite::first_rows::limit_windows;
use firn_plan::rewrite::join_methods::choose_methods;
use firn_plan::statistics::{Index, Statistics};
use firn_plan::text::print;
use firn_plan::unnest::unnest;
use firn_plan::verify::verify;
use firn_plan::{Operator, Plan};

/// How many random plans a test makes; more with FIRN_PLANS, from FIRN_SEED on.
fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// Each plan is run with vectors of three rows, with usual ones, and by three threads.
#[test]
fn random_plans_give_the_rows_of_the_interpreter() {
    let (first, plans) = (from_environment("FIRN_SEED", 0), from_environment("FIRN_PLANS", 1500));
    let (mut compared, mut with_rows, mut failed) = (0, 0, 0);
    for seed in first..first + plans {
        let mut random = Random::seeded(seed);
        let can_fail = random.uniform(0, 3) == 0;
        let shape = Shape {
            size: random.uniform(3, 14),
            can_fail,
            dependent: random.uniform(0, 1) == 0,
            parameters: false,
        };
        let plan = random_plan(&mut random, shape);
        let mut flat = plan.clone();
        unnest(&mut flat, &TestFunctions);
        let mut limited = flat.clone();
        limit_windows(&mut limited);
        verify(&limited).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{}", print(&limited)));
        for _ in 0..2 {
            let tables = random_tables(&mut random);
            let expected = match interpret(&flat, &tables, &[]) {
                Ok(rows) => Ok(rows),
                Err(error) if error.state() == SqlState::PROGRAM_LIMIT_EXCEEDED => continue,
                Err(error) => Err(error),
            };
            for mode in MODES {
                let found = run(&limited, &sources(&tables, mode.morsel_rows), &[], options(mode));
                let about = || format!("seed {seed}, {mode:?}\n{}\n{tables:?}", print(&limited));
                match (&expected, &found) {
                    (Ok(expected), Ok(found)) => {
                        assert_eq!(multiset(expected), multiset(found), "{}", about());
                        compared += 1;
                        with_rows += usize::from(!expected.is_empty());
                    }
                    // Which of several rows fails, and whether one that nothing asks for does, is open.
                    (Err(_), _) => failed += 1,
                    (Ok(_), Err(error)) => panic!("{error:?}: {}", about()),
                }
            }
        }
    }
    println!("{compared} compared, {with_rows} with rows, {failed} failed");
    assert!(
        compared as u64 > plans * 3 && with_rows * 4 > compared,
        "{compared} compared, {with_rows} with rows"
    );
}

/// Sources of which some are so large that indexes pay.
struct Large;

impl Statistics for Large {
    fn rows(&self, source: SourceId) -> f64 {
        [1.0, 1e3, 1e6, 1e9][source.0 as usize % 4]
    }

    fn distinct(&self, _: SourceId, _: &[i16]) -> Option<f64> {
        None
    }

    fn indexes(&self, _: SourceId) -> Vec<Index> {
        let index = |attributes: &&[i16]| Index {
            attributes: attributes.to_vec(),
            descending: vec![false; attributes.len()],
            nulls_first: vec![false; attributes.len()],
            unique: true,
        };
        index_attributes().iter().map(index).collect()
    }
}

/// Joins that look rows up, and those that build on their left side, give what the interpreter gives for the plan before.
#[test]
fn random_methods_of_joins_give_the_rows_of_the_interpreter() {
    let (first, plans) = (from_environment("FIRN_SEED", 0), from_environment("FIRN_PLANS", 1500));
    let (mut compared, mut with_rows, mut by_index, mut on_left) = (0, 0, 0, 0);
    for seed in first..first + plans {
        let mut random = Random::seeded(seed);
        let plan = match random.uniform(0, 1) {
            0 => random_joins(&mut random, 4),
            _ => {
                let shape = Shape {
                    size: random.uniform(3, 10),
                    can_fail: false,
                    dependent: true,
                    parameters: false,
                };
                let mut plan = random_plan(&mut random, shape);
                unnest(&mut plan, &TestFunctions);
                plan
            }
        };
        let mut indexed = plan.clone();
        limit_windows(&mut indexed);
        choose_methods(&mut indexed, &Large);
        verify(&indexed).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{}", print(&indexed)));
        let (indexes, lefts) = methods(&indexed);
        if indexes + lefts == 0 {
            continue;
        }
        by_index += indexes.min(1);
        on_left += lefts.min(1);
        for _ in 0..2 {
            let tables = random_tables(&mut random);
            let Ok(expected) = interpret(&plan, &tables, &[]) else { continue };
            for mode in MODES {
                let sources = Indexed(sources(&tables, mode.morsel_rows), tables.clone());
                let about = || format!("seed {seed}, {mode:?}\n{}\n{tables:?}", print(&indexed));
                let found = run(&indexed, &sources, &[], options(mode))
                    .unwrap_or_else(|error| panic!("{error:?}: {}", about()));
                assert_eq!(multiset(&expected), multiset(&found), "{}", about());
                compared += 1;
                with_rows += usize::from(!expected.is_empty());
                let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
                let spilling = Options { spill: Some(area.clone()), always_spill: true, ..options(mode) };
                let found = run(&indexed, &sources, &[], spilling)
                    .unwrap_or_else(|error| panic!("{error:?}: {}", about()));
                assert_eq!(multiset(&expected), multiset(&found), "spilling, {}", about());
                assert_eq!(area.used(), 0);
            }
        }
    }
    println!(
        "{by_index} of {plans} plans by an index, {on_left} on the left, {compared} compared, {with_rows} with rows"
    );
    let enough = by_index * 8 > plans && on_left * 20 > plans && with_rows * 5 > compared;
    assert!(enough, "{by_index} {on_left} {compared} {with_rows}");
}

/// How many of a plan's joins use an index, and how many build on their left side.
fn methods(plan: &Plan) -> (u64, u64) {
    let (mut by_index, mut on_left) = (0, 0);
    for node in plan.post_order() {
        let Operator::Join(join) = &plan[node] else { continue };
        match join.method {
            JoinMethod::BuildRight => {}
            JoinMethod::BuildLeft => on_left += 1,
            JoinMethod::Index(_) => by_index += 1,
        }
    }
    (by_index, on_left)
}

/// What can be spilled is: the rows are the same.
#[test]
fn random_plans_that_spill_give_the_rows_of_the_interpreter() {
    let (first, plans) = (from_environment("FIRN_SEED", 0), from_environment("FIRN_PLANS", 600));
    let (mut compared, mut spilled) = (0, 0);
    for seed in first..first + plans {
        let mut random = Random::seeded(seed);
        let shape =
            Shape { size: random.uniform(3, 12), can_fail: false, dependent: true, parameters: false };
        let mut plan = random_plan(&mut random, shape);
        unnest(&mut plan, &TestFunctions);
        let tables = random_tables(&mut random);
        let Ok(expected) = interpret(&plan, &tables, &[]) else { continue };
        for mode in MODES {
            let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 30);
            let options = Options { spill: Some(area.clone()), always_spill: true, ..options(mode) };
            let found = run(&plan, &sources(&tables, mode.morsel_rows), &[], options);
            let about = || format!("seed {seed}, {mode:?}\n{}\n{tables:?}", print(&plan));
            let found = found.unwrap_or_else(|error| panic!("{error:?}: {}", about()));
            assert_eq!(multiset(&expected), multiset(&found), "{}", about());
            assert_eq!(area.used(), 0, "{}", about());
            compared += 1;
            spilled += usize::from(area.written() > 0);
        }
    }
    println!("{compared} compared, {spilled} spilled");
    assert!(spilled * 3 > compared, "{spilled} of {compared} spilled");
}

/// A shared sub-plan is evaluated once, and a volatile condition asked once of each row.
#[test]
fn random_volatile_plans_give_the_rows_of_the_interpreter() {
    let (first, plans) = (from_environment("FIRN_SEED", 0), from_environment("FIRN_PLANS", 1000));
    let (mut compared, mut with_rows) = (0, 0);
    for seed in first..first + plans {
        let mut random = Random::seeded(seed);
        let shape = Shape { size: random.uniform(2, 8), can_fail: false, dependent: true, parameters: false };
        let mut plan = random_volatile_plan(&mut random, shape);
        unnest(&mut plan, &TestFunctions);
        let tables = random_tables(&mut random);
        let Ok(expected) = interpret(&plan, &tables, &[]) else { continue };
        for mode in MODES {
            restart_numbers();
            let found = run(&plan, &sources(&tables, mode.morsel_rows), &[], options(mode));
            let about = || format!("seed {seed}, {mode:?}\n{}\n{tables:?}", print(&plan));
            let found = found.unwrap_or_else(|error| panic!("{error:?}: {}", about()));
            assert_eq!(multiset(&expected), multiset(&found), "{}", about());
            compared += 1;
            with_rows += usize::from(!expected.is_empty());
        }
    }
    println!("{compared} compared, {with_rows} with rows");
    assert!(compared as u64 > plans && with_rows * 4 > compared, "{compared} {with_rows}");
}
