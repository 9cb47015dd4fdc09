//! The operations of clients and their results, in the order in which they happened, in the form of Adya's
//! checker. It infers which transactions must precede which, and looks for cycles (Adya 1999).

use super::workload::{Generator, Step};
use adya::history::{History, Id, Interner, Mop, Op, OpType, ReadValue, Scalar};
use adya::{Opts, Report, Valid, Workload};
use firn_base::sync::{AtomicBool, Mutex, Ordering};
use firn_base::{Error, clock};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

/// What a step read: the elements of every key that it has read; a register has one or none.
pub type Found = Vec<(i64, Vec<i64>)>;

/// Adds the keys in this range that were not found, without elements.
pub fn complete(found: &mut Found, first: i64, last: i64) {
    for key in first..=last {
        if !found.iter().any(|(found, _)| *found == key) {
            found.push((key, Vec::new()));
        }
    }
}

/// How a transaction ended.
pub enum Ended {
    /// With the reads of each of its steps.
    Committed(Vec<Found>),
    /// It has certainly not committed.
    Failed,
    /// The connection is broken; if that happened during the commit, the outcome is unknown.
    Lost { while_committing: bool },
    /// It failed with an error that must not occur.
    Wrong(Error),
}

/// Transactions by how they ended.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub committed: u64,
    pub failed: u64,
    pub unknown: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.committed += other.committed;
        self.failed += other.failed;
        self.unknown += other.unknown;
    }
}

/// A history that is being recorded.
pub struct Recorder {
    workload: Workload,
    planned: u64,
    /// Relaxed, both: they protect nothing.
    paused: AtomicBool,
    readers_paused: AtomicBool,
    state: Mutex<State>,
}

struct State {
    generator: Generator,
    /// Transactions that may still begin.
    left: u64,
    counts: Counts,
    ops: Vec<Op>,
    interner: Interner,
}

impl Recorder {
    pub fn new(workload: Workload, generator: Generator, transactions: u64) -> Recorder {
        let state = State {
            generator,
            left: transactions,
            counts: Counts::default(),
            ops: Vec::new(),
            interner: Interner::default(),
        };
        Recorder {
            workload,
            planned: transactions,
            paused: AtomicBool::new(false),
            readers_paused: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// How many transactions have begun.
    pub fn begun(&self) -> u64 {
        self.planned - self.state.lock().left
    }

    /// Whether more transactions may begin.
    pub fn has_transactions(&self) -> bool {
        self.state.lock().left > 0
    }

    /// Runs `body` while no transaction begins. Running transactions continue to their ends; with `of_readers`, only those that have
    /// written something do, so that others are paused in the middle.
    pub fn pause(&self, of_readers: bool, body: impl FnOnce()) {
        self.paused.store(true, Ordering::Relaxed);
        self.readers_paused.store(of_readers, Ordering::Relaxed);
        body();
        self.readers_paused.store(false, Ordering::Relaxed);
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Between the steps of a transaction that has written nothing: waits during a pause.
    pub fn pause_reader(&self) {
        wait_while(&self.readers_paused);
    }

    /// How many transactions will begin.
    pub fn planned(&self) -> u64 {
        self.planned
    }

    /// Prevents further transactions.
    pub fn stop(&self) {
        self.state.lock().left = 0;
    }

    /// The next transaction, which `process` begins now; `None` if there have been enough.
    pub fn begin(&self, process: i64) -> Option<Vec<Step>> {
        wait_while(&self.paused);
        let mut state = self.state.lock();
        state.left = state.left.checked_sub(1)?;
        let steps = state.generator.transaction();
        state.push(self.workload, OpType::Invoke, process, &steps, None);
        Some(steps)
    }

    /// Records how it has ended.
    pub fn end(&self, process: i64, steps: &[Step], ended: &Ended) {
        let mut state = self.state.lock();
        let counts = &mut state.counts;
        let (kind, found) = match ended {
            Ended::Committed(found) => {
                counts.committed += 1;
                (OpType::Ok, Some(found))
            }
            Ended::Lost { while_committing: true } => {
                counts.unknown += 1;
                (OpType::Info, None)
            }
            Ended::Failed | Ended::Lost { .. } | Ended::Wrong(_) => {
                counts.failed += 1;
                (OpType::Fail, None)
            }
        };
        state.push(self.workload, kind, process, steps, found.map(Vec::as_slice));
    }

    /// The history to check, and the generator of the next one.
    pub fn finish(self) -> (Checkable, Counts, Generator) {
        let State { generator, counts, ops, interner, .. } = self.state.into_inner();
        let history = History::from_ops(ops, interner);
        (Checkable { workload: self.workload, history }, counts, generator)
    }
}

impl State {
    fn push(
        &mut self,
        workload: Workload,
        kind: OpType,
        process: i64,
        steps: &[Step],
        found: Option<&[Found]>,
    ) {
        let interner = &mut self.interner;
        let mut id = |number: i64| interner.intern(Scalar::Int(number));
        let mut value = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            if let Step::Write { first, last, value: written, .. } = *step {
                for key in first..=last {
                    let (key, written) = (id(key), id(written + key - first));
                    value.push(match workload {
                        Workload::ListAppend => Mop::Append { key, value: written },
                        Workload::RwRegister => Mop::Write { key, value: written },
                    });
                }
            }
            match (found, step) {
                (None, Step::Read { first, last, .. }) => {
                    let unknown = |key| Mop::Read { key: id(key), value: ReadValue::Nil };
                    value.extend((*first..=*last).map(unknown));
                }
                (None, _) => {}
                (Some(found), _) => {
                    for (key, elements) in &found[number] {
                        assert!(
                            elements.iter().all(|element| *element >= 0),
                            "key {key} shows what was rolled back: {elements:?}"
                        );
                        let elements: Vec<Id> = elements.iter().map(|element| id(*element)).collect();
                        let read = match (workload, &elements[..]) {
                            (Workload::ListAppend, _) => ReadValue::List(elements),
                            (Workload::RwRegister, []) => ReadValue::Nil,
                            (Workload::RwRegister, [element]) => ReadValue::Scalar(*element),
                            _ => panic!("register {key} has several rows: {elements:?}"),
                        };
                        value.push(Mop::Read { key: id(*key), value: read });
                    }
                }
            }
        }
        let index = self.ops.len() as u64;
        self.ops.push(Op { index, kind, process: Some(process), value, time: None });
    }
}

fn wait_while(paused: &AtomicBool) {
    while paused.load(Ordering::Relaxed) {
        clock::sleep(Duration::from_micros(100));
    }
}

/// A history whose transactions have all ended.
pub struct Checkable {
    workload: Workload,
    history: History,
}

impl Checkable {
    /// Checks the history against a consistency model of Adya's or Jepsen's.
    pub fn check(&self, model: &str) -> Report {
        assert!(adya::model::all_models().contains(model), "no such model: {model}");
        let options = Opts {
            models: vec![model.to_owned()],
            timeout: Duration::from_secs(10),
            // Registers do not show which of two values was first. These options assume no more than the models
            // that are checked. If a transaction reads a value and writes another, its write comes after that
            // value. An acknowledged transaction precedes one that begins later.
            wfr_keys: true,
            linearizable_keys: true,
            ..Opts::default()
        };
        adya::check(&self.history, self.workload, &options)
    }

    /// Writes the history as JSON lines, which Elle and `adya check` read.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let show = |id: &Id| self.history.show(*id).to_string();
        for op in &self.history.ops {
            let steps = op.value.iter().map(|mop| match mop {
                Mop::Append { key, value } => format!(r#"["append",{},{}]"#, show(key), show(value)),
                Mop::Write { key, value } => format!(r#"["w",{},{}]"#, show(key), show(value)),
                Mop::Read { key, value } => {
                    let value = match value {
                        ReadValue::Nil => "null".to_owned(),
                        ReadValue::Scalar(value) => show(value),
                        ReadValue::List(values) => {
                            format!("[{}]", values.iter().map(show).collect::<Vec<_>>().join(","))
                        }
                    };
                    format!(r#"["r",{},{value}]"#, show(key))
                }
            });
            let kind = match op.kind {
                OpType::Invoke => "invoke",
                OpType::Ok => "ok",
                OpType::Fail => "fail",
                OpType::Info => "info",
            };
            let process = op.process.unwrap_or_default();
            let steps = steps.collect::<Vec<_>>().join(",");
            writeln!(
                file,
                r#"{{"index":{},"process":{process},"type":"{kind}","value":[{steps}]}}"#,
                op.index
            )?;
        }
        file.flush()
    }
}

/// The anomalies of a report, with the first explanation of each.
pub fn explain(report: &Report) -> String {
    if report.valid == Valid::True {
        return "none".to_owned();
    }
    let explained = report.anomalies.iter().map(|(kind, anomalies)| {
        let first = anomalies.first().map_or("", |anomaly| &anomaly.explanation);
        format!("{} of {kind}; the first:\n{first}", anomalies.len())
    });
    explained.collect::<Vec<_>>().join("\n")
}
