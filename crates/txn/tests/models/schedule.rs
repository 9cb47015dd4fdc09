//! Schedules: random choices of the task that continues, each schedule from a seed.
//!
//! A task continues until a random step. Half of the schedules then choose any other one. Half have
//! priorities: the task gets the lowest one, and continues when no other can or when the others have got a
//! lower one (PCT: Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
//! ASPLOS 2010). The distance of such steps differs between tasks and runs: so one task may stop for long
//! while another one does a lot.

use firn_base::random::Random;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::time::{Duration, Instant};

/// The time for which each model runs.
const SECONDS: f64 = 4.0;

/// After this many steps, several times what most runs take, every choice is fair. Otherwise, of two tasks
/// that conflict and try again, the same one might always be faster.
const UNFAIR_STEPS: usize = 20_000;
/// More than any run takes that ends.
const MOST_STEPS: usize = 400_000;
const STACK_BYTES: usize = 256 << 10;

/// Changes are up to 2^this steps apart.
const LONGEST_GAP_BITS: i64 = 11;

/// Runs a model repeatedly, each time with another schedule.
pub fn explore(model: fn()) {
    if let Some(seed) = variable("FIRN_MODEL_SEED") {
        return run(model, seed);
    }
    let seconds = variable("FIRN_MODEL_SECONDS").unwrap_or(SECONDS);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut seeds = Random::from_entropy();
    let mut runs = 0;
    while Instant::now() < until {
        run(model, seeds.next_u64());
        runs += 1;
    }
    println!("{runs} runs");
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn run(model: fn(), seed: u64) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.silence_warnings = true;
    // On a thread of its own, without state of other runs.
    let runner = move || Runner::new(Chooser::new(seed), config).run(model);
    let thread = std::thread::Builder::new().name(format!("seed {seed}")).spawn(runner);
    if let Err(panic) = thread.expect("the operating system starts a thread").join() {
        println!("FIRN_MODEL_SEED={seed} repeats it");
        std::panic::resume_unwind(panic);
    }
}

struct Chooser {
    random: Random,
    seed: u64,
    begun: bool,
    steps: usize,
    has_priorities: bool,
    /// By number.
    tasks: Vec<Known>,
    /// The lowest priority given so far.
    lowest: i64,
}

#[derive(Clone, Copy)]
struct Known {
    priority: i64,
    /// There is a change at one of this many of its steps.
    gap: i64,
}

impl Chooser {
    fn new(seed: u64) -> Chooser {
        let mut random = Random::seeded(seed);
        let has_priorities = random.uniform(0, 1) == 0;
        Chooser { random, seed, begun: false, steps: 0, has_priorities, tasks: Vec::new(), lowest: 0 }
    }
}

impl Scheduler for Chooser {
    fn new_execution(&mut self) -> Option<Schedule> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        is_first.then(|| Schedule::new(self.seed))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        self.steps += 1;
        if self.steps > UNFAIR_STEPS {
            return Some(runnable[self.random.uniform(0, runnable.len() as i64 - 1) as usize].id());
        }
        let most = runnable.iter().map(|task| usize::from(task.id())).max()?;
        while self.tasks.len() <= most {
            let priority = self.random.uniform(1, 1 << 40);
            let gap = 1 << self.random.uniform(0, LONGEST_GAP_BITS);
            self.tasks.push(Known { priority, gap });
        }
        let current = current.filter(|current| runnable.iter().any(|task| task.id() == *current));
        if let Some(current) = current {
            let known = &mut self.tasks[usize::from(current)];
            if !is_yielding && self.random.uniform(1, known.gap) != 1 {
                return Some(current);
            }
            self.lowest -= 1;
            known.priority = self.lowest;
        }
        let others: Vec<TaskId> =
            runnable.iter().map(|task| task.id()).filter(|task| Some(*task) != current).collect();
        if self.has_priorities {
            others.into_iter().max_by_key(|task| self.tasks[usize::from(*task)].priority).or(current)
        } else if others.is_empty() {
            current
        } else {
            Some(others[self.random.uniform(0, others.len() as i64 - 1) as usize])
        }
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}
