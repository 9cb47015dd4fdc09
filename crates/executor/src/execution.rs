//! Executions: a program that runs, and the rows that it gives.
//!
//! Pipelines run on demand. A step that is [`Blocked`](Step::Blocked) on a slot makes the execution run the slot's pipeline, and so on
//! downwards: what no row asks for is never computed. A pipeline begins on the calling thread. When those of a query have run there
//! for about a millisecond, all that follows runs on threads that leave contended cores to transactions
//! (docs/decisions/0011-queries-are-nice.md), and the calling thread waits. If the pipeline may be split there are several: each
//! has a stream and a sink of its own and takes morsels from the input that all share, and at the end the sinks are merged.
//!
//! The last pipeline is run by [`Rows::next`]. If it may be split it gets helpers likewise: they work while a call waits for rows, read
//! a few chunks ahead and keep their streams until the next call. If it may not be split it stays on the calling thread, since
//! what its functions do must not happen before their rows are asked for.
//!
//! A statement that changes rows holds locks for which others wait, so its pipelines do not leave their cores to others.
//!
//! An execution holds no transaction and no context: scans are bound to their snapshot when it starts, and each call of
//! [`Rows::next`] takes the context, so that a portal may be read from any thread.
//!
//! # Changes and locks
//!
//! A program that changes rows or locks them ([`Program::has_effects`]) is run by [`execute`] and not by [`Rows::start`]:
//!
//! ```text
//! let set = TargetSet::compile(catalog, &program.targets() with their definitions, expressions)?;   // kept with the program
//! let executed = execute(&program, sources, &set, &mut transaction, parameters, options, &context)?;
//! executed.count                                   // the command tag's number of rows; None of a query (SELECT … FOR UPDATE)
//! executed.rows.next(&context)                     // RETURNING, or the rows of the query
//! ```
//!
//! It returns when all changes and tests of the statement have been made, and all rows have been computed; the rows need no transaction
//! any more. After an error the caller rolls the transaction back to the beginning of the statement. An error with a
//! [blocker](firn_base::Error::blocker), or a retryable one while the transaction can advance its snapshot, asks the caller to wait
//! and to run the statement again (`Transaction::undo_statement`, `wait_for`, `restart`), as for native transactions; locks are
//! kept meanwhile. So is a conflict that `Transaction::take_skipped_conflict` reports after success.
//!
//! The statement does not see its own changes: scans of tables that it changes are read to their ends before its first
//! change, unless they only give rows to that change, which collects its rows before it begins. Then changes are made, each to its end, in
//! the order of the text; then the rows of the result are computed; actions and tests of foreign keys come last.

use crate::budget::Account;
use crate::buffer::RowBuffer;
use crate::compile::{PlannedLookup, PlannedScan, Program};
use crate::effects::{Effects, State as EffectState};
use crate::options::Options;
use crate::pipeline::{OpenFragment, Step, Stream, Work};
use crate::run::{Run, behind};
use crate::sinks::Changed;
use crate::source::{KeptScan, Reader, Sources};
use crate::values::constant;
use crate::write::TargetSet;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, Value, clock, thread};
use firn_storage::Judge;
use firn_txn::Transaction;
use firn_vector::{Chunk, Context, Vector};
use std::collections::{HashMap, VecDeque};

/// The rows of a program that runs. Dropping it ends the execution.
pub struct Rows {
    /// `None` once all its rows are kept.
    run: Option<(Arc<Program>, Arc<Run>)>,
    state: State,
}

enum State {
    /// Nothing has been asked for.
    New,
    /// The calling thread takes rows from the stream of the last pipeline.
    Alone {
        open: OpenFragment,
        stream: Box<Stream>,
    },
    /// Several workers take part: they read ahead, and stop when each has a few chunks.
    Together {
        streams: Vec<Stream>,
        ready: VecDeque<Chunk>,
        account: Account,
        /// How many chunks each of them reads ahead.
        most: usize,
    },
    /// All rows have been computed.
    Kept {
        rows: RowBuffer,
        next: usize,
    },
    Ended,
}

/// How many chunks each worker of the last pipeline reads ahead.
const READ_AHEAD: usize = 8;

impl Rows {
    /// Starts a program without changes and locks: opens all its scans, which logs what they read.
    pub fn start(
        program: &Arc<Program>,
        sources: &dyn Sources,
        reader: Reader<'_>,
        parameters: &[Value],
        options: Options,
    ) -> Result<Rows> {
        assert!(!program.has_effects(), "a program that changes or locks rows is executed");
        let run = open(program, sources, reader, parameters, options)?;
        Ok(Rows { run: Some((program.clone(), Arc::new(run))), state: State::New })
    }

    /// The next rows, with the vectors of the program's output and no selection; `None` after the last. After an error there are no more.
    pub fn next(&mut self, context: &Context<'_>) -> Result<Option<Chunk>> {
        let result = match (&mut self.state, &self.run) {
            (State::Kept { rows, next }, _) if *next < rows.len() => {
                context.check_cancel().and_then(|()| rows.get(*next)).map(|chunk| {
                    *next += 1;
                    Some(chunk)
                })
            }
            (State::Kept { .. } | State::Ended, _) | (_, None) => Ok(None),
            (_, Some((program, run))) => {
                let (program, run) = (program.clone(), run.clone());
                self.advance(&program, Work { run: &run, context, effects: None })
            }
        };
        if !matches!(result, Ok(Some(_))) {
            self.state = State::Ended;
        }
        result
    }

    fn advance(&mut self, program: &Program, work: Work<'_>) -> Result<Option<Chunk>> {
        let run = work.run;
        if matches!(self.state, State::New) {
            let open = program.result().open(work)?;
            let stream = Box::new(open.stream(work)?);
            self.state = State::Alone { open, stream };
        }
        if let State::Alone { open, stream } = &mut self.state {
            let may_split = !(program.result().is_serial || open.is_ordered());
            let (begin, left) = (clock::now(), run.alone_left());
            while !may_split || begin.elapsed() < left {
                match produce(program, work, stream)? {
                    Produced::Rows(chunk) => {
                        run.note_alone(begin.elapsed());
                        return Ok(Some(chunk));
                    }
                    Produced::Nothing => {}
                    Produced::Idle => panic!("there are no other workers"),
                    Produced::End => return Ok(None),
                }
            }
            self.begin_together(work)?;
        }
        let State::Together { streams, ready, account, most } = &mut self.state else { return Ok(None) };
        if ready.is_empty() {
            let most_chunks = *most;
            let mut chunks = behind(work, || read_ahead(program, work, streams, most_chunks))?;
            if account.set(chunks.iter().map(Chunk::memory).sum()).is_err() {
                // There is no room to read ahead: each worker has one chunk in hand, which is not charged.
                *most = 1;
                account.set(0)?;
            }
            ready.extend(chunks.drain(..));
        }
        Ok(ready.pop_front())
    }

    /// Gives each worker a stream of the last pipeline; the first has that of the calling thread.
    fn begin_together(&mut self, work: Work<'_>) -> Result<()> {
        let State::Alone { open, stream, .. } = std::mem::replace(&mut self.state, State::Ended) else {
            panic!("the calling thread has worked alone")
        };
        let others = (1..work.run.options.workers).map(|_| open.stream(work));
        let streams = std::iter::once(Ok(*stream)).chain(others).collect::<Result<_>>()?;
        let account = Account::new(&work.run.options.budget);
        self.state = State::Together { streams, ready: VecDeque::new(), account, most: READ_AHEAD };
        Ok(())
    }
}

/// Opens all scans and look-ups of a program.
fn open(
    program: &Arc<Program>,
    sources: &dyn Sources,
    reader: Reader<'_>,
    parameters: &[Value],
    options: Options,
) -> Result<Run> {
    let types = program.parameters();
    assert!(parameters.len() >= types.len(), "each parameter has a value");
    let parameter = |(value, representation): (&Value, &Option<firn_base::Representation>)| {
        constant(value, representation.unwrap_or(firn_base::Representation::Boolean), 1)
    };
    let vectors: Vec<Vector> = parameters
        .iter()
        .zip(types)
        .map(|(value, representation)| match representation {
            // A parameter that the plan does not use has no type.
            None => parameter((&Value::Null, representation)),
            Some(_) => parameter((value, representation)),
        })
        .collect();
    let judges = |scan: &PlannedScan| -> Vec<(i16, Judge)> {
        scan.judges
            .iter()
            .map(|planned| (planned.attribute, planned.judge(&vectors, &options.budget)))
            .collect()
    };
    let open = |scan: &PlannedScan| {
        let judges = judges(scan);
        let request = scan.request(&judges, parameters, program.columns(), options.workers);
        let transaction = reader.transaction.filter(|_| scan.is_logged);
        sources.source(scan.source).open(&request, Reader { transaction, ..reader })
    };
    let scans = program.scans().iter().map(open).collect::<Result<Vec<_>>>()?;
    let open = |lookup: &PlannedLookup| {
        let PlannedLookup { scan, attributes, .. } = lookup;
        let request = scan.request(&[], parameters, program.columns(), options.workers);
        let first = lookup.count(parameters).map(|count| (lookup.order(), count));
        sources.source(scan.source).open_lookup(&request, attributes, first, reader)
    };
    let lookups = program.lookups().iter().map(open).collect::<Result<Vec<_>>>()?;
    let filters = program.scans().iter().map(|scan| Arc::from(&scan.filters[..]));
    let scans = scans.into_iter().zip(filters).collect();
    Ok(Run::new(program.pipelines().clone(), scans, lookups, vectors, options))
}

/// What a program with changes or locks comes to.
pub struct Executed {
    /// The rows of RETURNING, or of the query. There are none of a change without RETURNING.
    pub rows: Rows,
    /// How many rows the statement's own change has changed; `None` if the statement is a query.
    pub count: Option<u64>,
}

/// Runs a program, with its changes and locks, to its end. `targets` are the tables that it changes, compiled for writing.
/// The [file's header](self) says what the caller does about errors.
pub fn execute(
    program: &Arc<Program>,
    sources: &dyn Sources,
    targets: &TargetSet,
    transaction: &mut Transaction,
    parameters: &[Value],
    options: Options,
    context: &Context<'_>,
) -> Result<Executed> {
    // Before anything is read or a guard is held, since it may have to wait for a table.
    for target in targets.named() {
        transaction.lock_row_exclusive_to_read(&target.table)?;
    }
    let mut locked = HashMap::new();
    for source in program.locked() {
        let table = sources.source(*source).table().expect("rows of tables are locked");
        transaction.lock_row_share_to_read(&table)?;
        locked.insert(*source, table);
    }
    let reader = Reader { snapshot: transaction.snapshot(), transaction: Some(transaction) };
    let mut run = open(program, sources, reader, parameters, options)?;
    run.set_locked(locked);
    let options = run.options.clone();
    for (scan, planned) in run.scans_mut().iter_mut().zip(program.scans()) {
        let is_changed =
            sources.source(planned.source).table().is_some_and(|table| targets.writes_to(table.id()));
        if is_changed && !planned.feeds_first_change {
            let representations = planned.representations(program.columns());
            *scan = Arc::new(KeptScan::new(&**scan, representations, &options, context)?);
        }
    }
    let threads = run.options.workers;
    let state = Mutex::new(EffectState::new(targets, transaction, program.changes().len() > 1, threads));
    let run = Arc::new(run);
    let work = Work { run: &run, context, effects: Some(&state as &dyn Effects) };
    for slot in program.changes() {
        let changed = run.complete(*slot, work);
        let mut state = state.lock();
        let writer = &mut state.writer;
        match changed {
            Ok(()) => writer.enter_keys().map_err(Error::without_row)?,
            // Rows that have been inserted have no order but that they came.
            Err(error) => return Err(writer.first_error(error, |_, _, _| true).without_row()),
        }
    }
    let count = |slot| run.filled::<Changed>(slot).expect("all changes have been made").count;
    let count = program.own_change().map(count);
    let mut rows = Rows { run: Some((program.clone(), run.clone())), state: State::New };
    let mut kept = RowBuffer::new(program.representations().to_vec(), &run.options);
    // A change without RETURNING gives a row without columns for each that it has changed.
    let gives_rows = !program.is_change() || !program.output().is_empty();
    while let Some(chunk) = rows.advance(program, work)? {
        if gives_rows {
            kept.push(chunk)?;
        }
    }
    drop(rows);
    state.into_inner().finish(context)?;
    Ok(Executed { rows: Rows { run: None, state: State::Kept { rows: kept, next: 0 } }, count })
}

/// What a step of the last pipeline comes to.
enum Produced {
    Nothing,
    /// Other streams must go on first.
    Idle,
    Rows(Chunk),
    End,
}

fn produce(program: &Program, work: Work<'_>, stream: &mut Stream) -> Result<Produced> {
    Ok(match stream.step(work)? {
        Step::More => Produced::Nothing,
        Step::Idle => Produced::Idle,
        Step::Full(chunk) => {
            let output = program.output().iter();
            let vectors = output.map(|place| chunk.vectors()[*place].clone()).collect();
            let rows = Chunk::new(chunk.length(), vectors);
            Produced::Rows(rows.with_selection(chunk.selection().cloned()).compact())
        }
        Step::Blocked(slot) => {
            work.run.complete(slot, work)?;
            Produced::Nothing
        }
        Step::Done => Produced::End,
    })
}

/// Lets each stream produce a few chunks, on threads of their own. Streams that have ended are removed; no chunks come only at the end.
fn read_ahead(
    program: &Program,
    work: Work<'_>,
    streams: &mut Vec<Stream>,
    most: usize,
) -> Result<Vec<Chunk>> {
    loop {
        let chunks = read_once(program, work, streams, most)?;
        if !chunks.is_empty() || streams.is_empty() {
            return Ok(chunks);
        }
        // One that was refused a thread may be the one that others wait for.
        streams.rotate_left(1);
    }
}

/// The same, but there may be no chunks yet.
fn read_once(
    program: &Program,
    work: Work<'_>,
    streams: &mut Vec<Stream>,
    most: usize,
) -> Result<Vec<Chunk>> {
    let read = |stream: &mut Stream| -> Result<(Vec<Chunk>, bool)> {
        let mut chunks = Vec::with_capacity(most);
        while chunks.len() < most {
            match produce(program, work, stream)? {
                Produced::Rows(chunk) => chunks.push(chunk),
                Produced::Nothing => {}
                Produced::Idle => break,
                Produced::End => return Ok((chunks, true)),
            }
        }
        Ok((chunks, false))
    };
    let read = &read;
    let results: Vec<Result<(Vec<Chunk>, bool)>> = thread::scope(|scope| {
        let Some((own, others)) = streams.split_first_mut() else { return Vec::new() };
        let helpers: Vec<_> = others
            .iter_mut()
            .map(|stream| thread::start_scoped(scope, "query", move || read(stream)))
            .collect();
        let mut results = vec![read(own)];
        for helper in helpers {
            results.push(match helper {
                // A panic goes on in the caller.
                Ok(helper) => helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // What the operating system refuses is read at another time.
                Err(_) => Ok((Vec::new(), false)),
            });
        }
        results
    });
    let (mut all, mut ended) = (Vec::new(), Vec::with_capacity(results.len()));
    for result in results {
        let (chunks, is_ended) = result?;
        all.extend(chunks);
        ended.push(is_ended);
    }
    let mut ended = ended.into_iter();
    streams.retain(|_| !ended.next().expect("each stream has a result"));
    Ok(all)
}
