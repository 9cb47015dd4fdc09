//! Random plans over small random tables, compared with the interpreter of plans.

use crate::support::{MODES, multiset, options, run, sources};
use firn_base::SqlState;
use firn_base::random::Random;
use firn_plan::reference::random::{Shape, random_plan, random_tables};
use firn_plan::reference::{TestFunctions, run as interpret};
use firn_plan::text::print;
use firn_plan::unnest::unnest;
use firn_plan::verify::verify;

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
        let shape = Shape { size: random.uniform(3, 14), can_fail, dependent: random.uniform(0, 1) == 0 };
        let plan = random_plan(&mut random, shape);
        let mut flat = plan.clone();
        unnest(&mut flat, &TestFunctions);
        verify(&flat).unwrap_or_else(|problem| panic!("seed {seed}: {problem}\n{}", print(&flat)));
        for _ in 0..2 {
            let tables = random_tables(&mut random);
            let expected = match interpret(&flat, &tables, &[]) {
                Ok(rows) => Ok(rows),
                Err(error) if error.state() == SqlState::PROGRAM_LIMIT_EXCEEDED => continue,
                Err(error) => Err(error),
            };
            for mode in MODES {
                let found = run(&flat, &sources(&tables, mode.morsel_rows), &[], options(mode));
                let about = || format!("seed {seed}, {mode:?}\n{}\n{tables:?}", print(&flat));
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
