//! COPY with the client: data is received and sent in pieces.
//!
//! A COPY from the client works in the block's transaction while the connection is idle, or in a
//! transaction of its own. The block lends its transaction through a [`Home`] to which it returns
//! when the COPY ends.

use crate::acknowledge::{acknowledge, not_known_to_be_replicated};
use crate::connection::{CommandTag, Connection, Outcome};
use crate::database::Shared;
use crate::errors::{internal_error, timed_out, with_table_of_constraint};
use crate::new_file::NewFile;
use crate::rows::{Drawing, KeptPieces, Pieces, Reading, SharedStream};
use crate::timer::Alarm;
use arrow_array::RecordBatch;
use firn_base::stack;
use firn_base::sync::{Arc, Mutex, Weak};
use firn_base::{Error, Result, SqlState};
use firn_sql::activity::{Activity, State};
use firn_sql::copy::{CopyFormat, CopyFrom, CopyTo, Deed, Progress, is_damage};
use firn_sql::parse::Parsed;
use firn_sql::query::check_deferred;
use firn_sql::session_facts::SessionFacts;
use firn_sql::standby::SynchronousCommit;
use firn_sql::tree::{self, CopyTarget, CopyValue, UtilityValue};
use firn_sql::{KeptBytes, RunOptions, cancelled, ddl};
use firn_txn::{Savepoint, Transaction};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Where a lent transaction returns to.
#[derive(Default)]
pub(crate) struct Home(Mutex<HomeState>);

#[derive(Default)]
enum HomeState {
    /// The COPY is under way.
    #[default]
    Away,
    /// The transaction is back.
    Returned(Box<Transaction>),
    /// The COPY has failed; there is a transaction if ROLLBACK TO can continue with it.
    Failed(Option<Box<Transaction>>),
    /// The connection has taken the transaction back, or no longer needs it: a COPY that returns one later rolls it back.
    Left,
}

/// What has become of a lent transaction.
pub(crate) enum Recalled {
    /// The COPY has ended.
    Done(Box<Transaction>),
    /// The COPY has failed; there is a transaction if ROLLBACK TO can continue with it.
    Failed(Option<Box<Transaction>>),
    /// The COPY has not ended.
    UnderWay,
}

impl Home {
    /// Takes the state of the transaction. That of a COPY that is under way is given up.
    pub fn recall(&self) -> Recalled {
        match std::mem::replace(&mut *self.0.lock(), HomeState::Left) {
            HomeState::Returned(transaction) => Recalled::Done(transaction),
            HomeState::Failed(transaction) => Recalled::Failed(transaction),
            HomeState::Away | HomeState::Left => Recalled::UnderWay,
        }
    }

    pub fn has_failed(&self) -> bool {
        matches!(*self.0.lock(), HomeState::Failed(_))
    }

    /// Returns the transaction. If the connection does not wait for it, it is rolled back, as it is dropped.
    fn bring(&self, brought: HomeState) {
        let mut state = self.0.lock();
        if matches!(*state, HomeState::Away) {
            *state = brought;
        }
    }
}

/// COPY … FROM STDIN in progress: takes data as an [`io::Write`] or as Arrow batches until [`CopyIn::finish`]. Dropping it aborts
/// the statement. Inside a transaction it uses that one: another statement of the connection aborts it.
///
/// ```
/// use std::io::Write;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut connection = firn_session::Database::memory()?.connect();
/// connection.execute("CREATE TABLE items (id integer, name text)")?;
/// let mut copy = connection.copy_in("COPY items FROM STDIN (FORMAT csv)")?;
/// for (id, name) in [(1, "pencil"), (2, "paper")] {
///     writeln!(copy, "{id},{name}")?;
/// }
/// assert_eq!(copy.finish()?.rows, Some(2));
/// # Ok(())
/// # }
/// ```
pub struct CopyIn {
    copy: Option<CopyFrom>,
    columns: usize,
    format: CopyFormat,
    transaction: Option<Box<Transaction>>,
    options: RunOptions,
    facts: Arc<SessionFacts>,
    end: End,
    /// The alarm that ends the statement when it has taken too long, the time of the client included.
    alarm: Option<Alarm>,
}

/// What happens to the transaction when the COPY ends.
enum End {
    /// It is committed.
    Commit { shared: Arc<Shared>, mode: SynchronousCommit, activity: Arc<Activity>, reports_warnings: bool },
    /// It returns to the block. If the COPY fails, it releases its rows at once, up to the last savepoint of the block if there
    /// is one, as after any other error ([`Connection::fail_open_block`]).
    Return { home: Arc<Home>, last: Option<Savepoint> },
}

impl CopyIn {
    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How the data is written.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// Takes the next bytes of data, cut anywhere. After an error the statement has been rolled
    /// back. As an [`io::Write`] it returns the error within an [`io::Error`].
    pub fn write_data(&mut self, data: &[u8]) -> Result<()> {
        self.step(|copy, transaction, options| copy.write(transaction, options, data))
    }

    /// Takes the rows of an Arrow batch, whose columns are those of the COPY in their order. They are
    /// assigned as `INSERT … SELECT` would assign them: 42804 where that does not cast, 0A000 for Arrow types
    /// without an SQL type. After an error the statement has been rolled back.
    pub fn write_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        self.step(|copy, transaction, options| copy.write_batch(transaction, options, batch))
    }

    fn step(
        &mut self,
        work: impl FnOnce(&mut CopyFrom, &mut Transaction, &RunOptions) -> Result<()>,
    ) -> Result<()> {
        let (Some(copy), Some(transaction)) = (&mut self.copy, &mut self.transaction) else {
            return Err(ended());
        };
        let options = &self.options;
        let work = || stack::with_room_for_tree(|| work(copy, transaction, options));
        let result =
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(internal_error(&*panic)));
        result.map_err(|error| self.failed(error))
    }

    /// Ends the data: only now are the rows stored, and returned by later statements.
    pub fn finish(self) -> Result<CommandTag> {
        Ok(self.finish_with_notices()?.0)
    }

    fn finish_with_notices(mut self) -> Result<(CommandTag, Vec<Error>)> {
        let (Some(copy), Some(transaction)) = (self.copy.take(), &mut self.transaction) else {
            return Err(ended());
        };
        let (options, facts) = (&self.options, &self.facts);
        let commits = matches!(self.end, End::Commit { .. });
        let finish = || {
            let copied = stack::with_room_for_tree(|| copy.finish(transaction, options))?;
            if commits {
                check_deferred(transaction, facts, options)?;
            }
            Ok(copied)
        };
        let result =
            catch_unwind(AssertUnwindSafe(finish)).unwrap_or_else(|panic| Err(internal_error(&*panic)));
        let copied = match result {
            Ok(copied) => copied,
            Err(error) => return Err(self.failed(error)),
        };
        let mut transaction = self.transaction.take().expect("it has just been used");
        let mut notices = copied.notices;
        match &self.end {
            End::Commit { shared, mode, activity, reports_warnings } => {
                let has_ddl = transaction.has_ddl();
                let ticket = transaction.commit()?;
                if has_ddl {
                    shared.note_end_of_ddl();
                }
                match acknowledge(shared, *mode, ticket, activity, &self.options.cancel)? {
                    Some(warning) if *reports_warnings => notices.push(warning),
                    Some(warning) => return Err(not_known_to_be_replicated(warning)),
                    None => {}
                }
            }
            End::Return { home, .. } => {
                transaction.acquire_snapshot();
                home.bring(HomeState::Returned(transaction));
            }
        }
        Ok((CommandTag { verb: "COPY", rows: Some(copied.rows) }, notices))
    }

    fn failed(&mut self, error: Error) -> Error {
        let error = timed_out(error, self.alarm.as_ref());
        let error = match &self.transaction {
            Some(transaction) => with_table_of_constraint(error, transaction.catalog()),
            None => error,
        };
        self.abort();
        error
    }

    fn abort(&mut self) {
        self.copy = None;
        let Some(mut transaction) = self.transaction.take() else { return };
        match &self.end {
            End::Commit { .. } => transaction.rollback(),
            End::Return { home, last: Some(savepoint) } => {
                transaction.rollback_to(*savepoint);
                home.bring(HomeState::Failed(Some(transaction)));
            }
            End::Return { home, last: None } => {
                transaction.rollback();
                home.bring(HomeState::Failed(None));
            }
        }
    }
}

impl io::Write for CopyIn {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.write_data(data).map_err(io::Error::other)?;
        Ok(data.len())
    }

    /// Does nothing: only [`CopyIn::finish`] ends the data.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for CopyIn {
    fn drop(&mut self) {
        self.abort();
    }
}

/// How much is read at once of what a program gives.
const READ_BYTES: usize = 64 << 10;

#[cold]
fn not_a_copy(what: &str) -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, format!("the statement is not {what}"))
        .with_hint("Use Connection::execute for other statements, and for COPY with a file.")
}

fn ended() -> Error {
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "the COPY has ended")
}

/// COPY … TO STDOUT in progress: an [`io::Read`] of the data, which is computed while it is read.
///
/// ```
/// use std::io::Read;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut connection = firn_session::Database::memory()?.connect();
/// let mut text = String::new();
/// connection.copy_out("COPY (VALUES (1, 'a'), (2, NULL)) TO STDOUT")?.read_to_string(&mut text)?;
/// assert_eq!(text, "1\ta\n2\t\\N\n");
/// # Ok(())
/// # }
/// ```
pub struct CopyOut {
    /// The rest of a piece that was read in part, and where it begins.
    piece: Vec<u8>,
    read: usize,
    columns: usize,
    format: CopyFormat,
    rows: Rows,
    progress: Arc<Progress>,
    source: CopySource,
}

/// Where it reads its data: in a transaction of its own or in the connection's.
enum CopySource {
    Own(Box<OwnCopy>),
    Shared(Arc<SharedStream<CopyTo>>),
}

struct OwnCopy {
    copy: CopyTo,
    alarm: Option<Alarm>,
    /// Declared after the stream that reads in it, so that it is dropped later.
    reading: Option<Reading>,
}

impl Pieces for CopyTo {
    type Piece = Vec<u8>;
    type Kept = KeptBytes;

    fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        CopyTo::next_piece(self)
    }

    fn kept(&self) -> KeptBytes {
        CopyTo::kept(self)
    }
}

impl KeptPieces<Vec<u8>> for KeptBytes {
    fn keep(&mut self, piece: Vec<u8>) -> Result<()> {
        self.push(piece)
    }

    fn take_first(&mut self) -> Result<Option<Vec<u8>>> {
        self.take()
    }
}

impl CopyOut {
    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// How the data is written.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// The next bytes, whole rows if the format has rows; `None` at the end.
    pub fn next_chunk(&mut self) -> Result<Option<Vec<u8>>> {
        let OwnCopy { copy, alarm, reading } = match &mut self.source {
            CopySource::Shared(shared) => return shared.next(),
            CopySource::Own(own) => &mut **own,
        };
        let piece = catch_unwind(AssertUnwindSafe(|| copy.next_piece()))
            .unwrap_or_else(|panic| Err(internal_error(&*panic)));
        if !matches!(piece, Ok(Some(_)))
            && let Some(reading) = reading.take()
            && piece.is_ok()
        {
            reading.end(alarm.as_ref())?;
        }
        piece.map_err(|error| timed_out(error, alarm.as_ref()))
    }

    /// The rows of a piece, each with all its bytes; the first with the header of a binary file, whose
    /// trailer comes as a row of its own.
    pub fn rows<'p>(&self, piece: &'p [u8]) -> impl Iterator<Item = &'p [u8]> {
        let (rows, mut rest) = (self.rows, piece);
        std::iter::from_fn(move || {
            let end = rows.end_of_first(rest);
            let row = rest.split_off(..end)?;
            (!row.is_empty()).then_some(row)
        })
    }

    /// The command tag, once `next_chunk` has returned `None`.
    pub fn tag(&self) -> CommandTag {
        CommandTag { verb: "COPY", rows: Some(self.progress.rows()) }
    }
}

/// How to find the end of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rows {
    /// Every line feed is one.
    Text,
    /// A line feed inside quotes is none, so that a row may span several lines.
    Csv { quote: u8, escape: u8 },
    /// Each field begins with its length.
    Binary,
    /// There are no rows: bytes are cut anywhere.
    None,
}

/// Bytes of a piece of data without rows.
const PIECE_BYTES: usize = 64 << 10;

impl Rows {
    fn of(copy: &tree::Copy, to: &CopyTo) -> Rows {
        if !to.has_whole_rows() {
            return Rows::None;
        }
        let option = |name: &str| {
            copy.options.iter().find_map(|option| match &option.value {
                CopyValue::Value(UtilityValue::Word(text)) if *option.name.text == *name => Some(&**text),
                _ => None,
            })
        };
        let character = |name: &str| option(name).and_then(|text| text.bytes().next());
        match to.format() {
            // Strings of JSON hold no line feeds.
            CopyFormat::Text | CopyFormat::Json => Rows::Text,
            CopyFormat::Csv => {
                let quote = character("quote").unwrap_or(b'"');
                Rows::Csv { quote, escape: character("escape").unwrap_or(quote) }
            }
            CopyFormat::Binary => Rows::Binary,
            CopyFormat::Parquet | CopyFormat::Arrow => Rows::None,
        }
    }

    /// How many bytes the first row has, its end included.
    fn end_of_first(self, text: &[u8]) -> usize {
        match self {
            Rows::Binary => return firn_sql::copy::end_of_first_row(text),
            Rows::None => return text.len().min(PIECE_BYTES),
            Rows::Text | Rows::Csv { .. } => {}
        }
        let mut quoted = false;
        let mut escaped = false;
        for (position, byte) in text.iter().enumerate() {
            match self {
                _ if escaped => escaped = false,
                Rows::Csv { quote, escape } if quoted && escape != quote && *byte == escape => escaped = true,
                // A doubled quote closes the quotes and opens them again, which has the same effect.
                Rows::Csv { quote, .. } if *byte == quote => quoted = !quoted,
                _ if *byte == b'\n' && !quoted => return position + 1,
                _ => {}
            }
        }
        text.len()
    }
}

impl io::Read for CopyOut {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            match self.next_chunk().map_err(io::Error::other)? {
                Some(piece) => (self.piece, self.read) = (piece, 0),
                None => return Ok(0),
            }
        }
        let rest = &self.piece[self.read..];
        let bytes = rest.len().min(buffer.len());
        buffer[..bytes].copy_from_slice(&rest[..bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}

impl Connection {
    /// Begins COPY … FROM STDIN, which is to be given its data: see [`CopyIn`]. 42809 for another statement.
    pub fn copy_in(&mut self, sql: &str) -> Result<CopyIn> {
        let statement = self.prepare(sql)?;
        if statement.copies_from_client() != Some(true) {
            return Err(not_a_copy("COPY FROM STDIN"));
        }
        match self.run(&statement, &[])? {
            Outcome::CopyIn(copy) => Ok(*copy),
            _ => Err(not_a_copy("COPY FROM STDIN")),
        }
    }

    /// Begins COPY … TO STDOUT, whose data is to be read: see [`CopyOut`]. 42809 for another statement.
    pub fn copy_out(&mut self, sql: &str) -> Result<CopyOut> {
        let statement = self.prepare(sql)?;
        if statement.copies_from_client() != Some(false) {
            return Err(not_a_copy("COPY TO STDOUT"));
        }
        match self.run(&statement, &[])? {
            Outcome::CopyOut(copy) => Ok(*copy),
            _ => Err(not_a_copy("COPY TO STDOUT")),
        }
    }

    /// Runs COPY … FROM STDIN with all that a reader returns; returns how many rows were stored. If the reader fails (58030),
    /// none are.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// connection.execute("CREATE TABLE items (id integer, name text)")?;
    /// let data: &[u8] = b"1\tpencil\n2\tpaper\n"; // or a std::fs::File
    /// assert_eq!(connection.copy_from("COPY items FROM STDIN", data)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_from(&mut self, sql: &str, mut reader: impl io::Read) -> Result<u64> {
        let mut copy = self.copy_in(sql)?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(self.end_copy(copy)?.rows.unwrap_or(0)),
                Ok(bytes) => copy.write_data(&buffer[..bytes])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let message = format!("could not read the data of COPY FROM STDIN: {error}");
                    return Err(Error::new(SqlState::IO_ERROR, message));
                }
            }
        }
    }

    /// Runs COPY … TO STDOUT and writes its data; returns how many rows it has. 58030 if the writer fails.
    ///
    /// ```
    /// # fn main() -> firn_session::Result<()> {
    /// # let mut connection = firn_session::Database::memory()?.connect();
    /// let mut csv = Vec::new(); // or a std::fs::File
    /// let rows = connection.copy_to("COPY (SELECT 1 AS a) TO STDOUT (FORMAT csv, HEADER)", &mut csv)?;
    /// assert_eq!((rows, csv.as_slice()), (1, b"a\n1\n".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn copy_to(&mut self, sql: &str, mut writer: impl io::Write) -> Result<u64> {
        let mut copy = self.copy_out(sql)?;
        let failed = |error: io::Error| {
            let message = format!("could not write the data of COPY TO STDOUT: {error}");
            Error::new(SqlState::IO_ERROR, message)
        };
        while let Some(piece) = copy.next_chunk()? {
            writer.write_all(&piece).map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        Ok(copy.tag().rows.unwrap_or(0))
    }

    /// COPY, which `parsed` is.
    pub(crate) fn copy(&mut self, parsed: &Parsed, copy: &tree::Copy) -> Result<Outcome> {
        match (copy.is_from, &copy.target) {
            (true, CopyTarget::Standard) => {
                self.refuse_read_only("COPY FROM")?;
                self.begin_copy_in(parsed, copy)
            }
            (true, CopyTarget::File(path)) => {
                self.refuse_read_only("COPY FROM")?;
                let rows = self.copy_from_file(parsed, copy, path)?;
                Ok(Outcome::Done(CommandTag { verb: "COPY", rows: Some(rows) }))
            }
            (false, CopyTarget::Standard) => {
                let alarm = self.alarm();
                self.begin_copy_out(parsed, copy, alarm).map(|copy| Outcome::CopyOut(Box::new(copy)))
            }
            (false, CopyTarget::File(path)) => {
                let rows = self.copy_to_file(parsed, copy, path)?;
                Ok(Outcome::Done(CommandTag { verb: "COPY", rows: Some(rows) }))
            }
            (_, CopyTarget::Program(_)) => unreachable!("it was refused when it was prepared"),
        }
    }

    /// Ends the data of a COPY that this connection has begun, and takes over its notices.
    pub(crate) fn end_copy(&mut self, copy: CopyIn) -> Result<CommandTag> {
        let (tag, mut notices) = copy.finish_with_notices()?;
        self.notices.append(&mut notices);
        Ok(tag)
    }

    fn begin_copy_in(&mut self, parsed: &Parsed, copy: &tree::Copy) -> Result<Outcome> {
        let (options, alarm) = (self.options.clone(), self.alarm());
        self.begin_statement().map_err(|error| timed_out(error, alarm.as_ref()))?;
        if let Some(mut transaction) = self.block.take_transaction() {
            self.streams.read_ahead();
            let from = self.make_copy_from(&mut transaction, parsed, copy);
            let from = match from {
                Ok(from) => from,
                Err(error) => {
                    self.block.put_transaction(transaction);
                    return Err(timed_out(error, alarm.as_ref()));
                }
            };
            self.activity.show_copy(from.progress());
            from.release_snapshot(&mut transaction);
            let home = Arc::new(Home::default());
            let last = self.block.lend(home.clone());
            let end = End::Return { home, last };
            return Ok(Outcome::CopyIn(Box::new(CopyIn {
                columns: from.columns(),
                format: from.format(),
                copy: Some(from),
                transaction: Some(transaction),
                options,
                facts: self.facts.clone(),
                end,
                alarm,
            })));
        }
        self.services.set_read_only(false);
        let mut transaction = Box::new(self.begin_transaction(self.default_isolation)?);
        let from = self.make_copy_from(&mut transaction, parsed, copy);
        let from = from.map_err(|error| timed_out(error, alarm.as_ref()))?;
        self.activity.show_copy(from.progress());
        from.release_snapshot(&mut transaction);
        let end = End::Commit {
            shared: self.shared.clone(),
            mode: self.synchronous_commit,
            activity: self.activity.clone(),
            reports_warnings: self.reports_warnings,
        };
        Ok(Outcome::CopyIn(Box::new(CopyIn {
            columns: from.columns(),
            format: from.format(),
            copy: Some(from),
            transaction: Some(transaction),
            options,
            facts: self.facts.clone(),
            end,
            alarm,
        })))
    }

    /// Prepares what stores the rows, and what stores those that are left out.
    fn make_copy_from(
        &mut self,
        transaction: &mut Transaction,
        parsed: &Parsed,
        copy: &tree::Copy,
    ) -> Result<CopyFrom> {
        if copy.options.iter().any(|option| &*option.name.text == "rejects_table") {
            let mut context = ddl::Context {
                engine: &self.shared.engine,
                transaction,
                facts: &self.facts,
                options: &self.options,
                notices: &mut self.notices,
            };
            if firn_sql::copy::make_rejects_table(&mut context, copy)? {
                self.note_ddl(transaction);
            }
        }
        CopyFrom::new(transaction, &self.facts, parsed, self.options.style)
    }

    fn begin_copy_out(
        &mut self,
        parsed: &Parsed,
        copy: &tree::Copy,
        alarm: Option<Alarm>,
    ) -> Result<CopyOut> {
        // A COPY to a file lasts until the file is written.
        let is_drawn = matches!(copy.target, CopyTarget::Standard);
        let command = self.with_planner(|connection, transaction| {
            CopyTo::command_with_effects(transaction, &connection.facts, parsed, &connection.options)
        });
        let command = command.map_err(|error| timed_out(error, alarm.as_ref()))?;
        if let Some(command) = command {
            self.refuse_read_only(&command)?;
            let to = self.in_transaction(|connection, transaction| {
                CopyTo::changed(
                    transaction,
                    &connection.facts,
                    parsed,
                    &connection.options,
                    connection.options.style,
                )
                .map_err(|error| with_table_of_constraint(error, transaction.catalog()))
            })?;
            let own = |copy| CopySource::Own(Box::new(OwnCopy { copy, alarm, reading: None }));
            return Ok(self.shown(copy, to, |_, copy| own(copy)));
        }
        self.begin_statement().map_err(|error| timed_out(error, alarm.as_ref()))?;
        if let Some(mut transaction) = self.block.take_transaction() {
            self.streams.read_ahead();
            self.note_read_of_tables();
            // Its rows are read while later statements run.
            transaction.pin_snapshot();
            let to = CopyTo::new(&transaction, &self.facts, parsed, &self.options, self.options.style);
            self.block.put_transaction(transaction);
            let to = to.map_err(|error| timed_out(error, alarm.as_ref()))?;
            return Ok(self.shown(copy, to, |connection, to| {
                let drawing = is_drawn.then(|| Drawing::new(&connection.activity, State::InBlock));
                let failure = connection.stream_failure.clone();
                let shared = Arc::new(SharedStream::new(to, alarm, failure, drawing));
                let weak: Weak<SharedStream<CopyTo>> = Arc::downgrade(&shared);
                connection.streams.add(weak);
                CopySource::Shared(shared)
            }));
        }
        let transaction = self.begin_reader().map_err(|error| timed_out(error, alarm.as_ref()))?;
        let to = CopyTo::new(&transaction, &self.facts, parsed, &self.options, self.options.style)
            .map_err(|error| timed_out(error, alarm.as_ref()))?;
        let reading =
            Some(Reading::new(transaction, self.read_waits(true), &self.services, &self.options.cancel));
        Ok(self.shown(copy, to, |_, copy| CopySource::Own(Box::new(OwnCopy { copy, alarm, reading }))))
    }

    /// A COPY whose statistics other sessions see, and that reads its data.
    fn shown(
        &mut self,
        copy: &tree::Copy,
        to: CopyTo,
        source: impl FnOnce(&mut Self, CopyTo) -> CopySource,
    ) -> CopyOut {
        self.activity.show_copy(to.progress());
        let (columns, format, progress) = (to.columns(), to.format(), to.progress().clone());
        let rows = Rows::of(copy, &to);
        CopyOut { piece: Vec::new(), read: 0, columns, format, rows, progress, source: source(self, to) }
    }

    fn copy_from_file(&mut self, parsed: &Parsed, copy: &tree::Copy, path: &str) -> Result<u64> {
        let is_pipe = std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file());
        let mut has_begun = false;
        let mut copied = self.in_transaction(|connection, transaction| {
            if is_pipe && std::mem::replace(&mut has_begun, true) {
                return Err(read_once(path));
            }
            let from = connection.make_copy_from(transaction, parsed, copy)?;
            connection.activity.show_copy(from.progress());
            from.release_snapshot(transaction);
            let failed = |deed: Deed, error: &io::Error| match deed {
                Deed::Open => file_error(&format!("could not open file \"{path}\" for reading"), error),
                Deed::Read if is_damage(error) => damaged(path, error),
                Deed::Read => file_error(&format!("could not read file \"{path}\""), error),
            };
            let copied = from.read_file(transaction, &connection.options, path.as_ref(), &failed);
            transaction.acquire_snapshot();
            copied.map_err(|error| with_table_of_constraint(error, transaction.catalog()))
        })?;
        self.notices.append(&mut copied.notices);
        Ok(copied.rows)
    }

    fn copy_to_file(&mut self, parsed: &Parsed, copy: &tree::Copy, path: &str) -> Result<u64> {
        if !std::path::Path::new(path).is_absolute() {
            return Err(Error::new(SqlState::new("42602"), "relative path not allowed for COPY to file"));
        }
        let alarm = self.alarm();
        let out = self.begin_copy_out(parsed, copy, None);
        let mut out = out.map_err(|error| timed_out(error, alarm.as_ref()))?;
        let failed = |what: String, error: &io::Error| match self.options.cancel.is_cancelled() {
            // A pipe without a reader is not waited for any more.
            true => timed_out(cancelled(), alarm.as_ref()),
            false => file_error(&what, error),
        };
        let not_opened = |error| failed(format!("could not open file \"{path}\" for writing"), &error);
        let not_written = |error| failed(format!("could not write file \"{path}\""), &error);
        let cancel = self.options.cancel.clone();
        let stops = Box::new(move || cancel.is_cancelled());
        let mut file = NewFile::create(path.as_ref(), stops).map_err(not_opened)?;
        while let Some(piece) = out.next_chunk().map_err(|error| timed_out(error, alarm.as_ref()))? {
            file.write(&piece).map_err(not_written)?;
        }
        file.finish().map_err(not_written)?;
        Ok(out.tag().rows.unwrap_or(0))
    }
}

/// The error of a statement that would have to be run again, after a conflict, but cannot.
#[cold]
fn read_once(path: &str) -> Error {
    let message = format!("a conflict with another transaction, and \"{path}\" cannot be read again");
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail("Nothing was stored. It is a pipe, and the data that was read from it is lost.")
        .with_hint("Run the COPY again, with the data from its beginning.")
}

/// The error for a file that cannot be decompressed.
#[cold]
fn damaged(path: &str, error: &io::Error) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, format!("could not read file \"{path}\": {error}"))
        .with_hint("The file may be damaged, or its writer may not have finished.")
}

fn file_error(what: &str, error: &io::Error) -> Error {
    let state = match error.kind() {
        io::ErrorKind::NotFound => SqlState::UNDEFINED_FILE,
        io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        io::ErrorKind::StorageFull => SqlState::DISK_FULL,
        io::ErrorKind::IsADirectory => SqlState::WRONG_OBJECT_TYPE,
        _ => SqlState::IO_ERROR,
    };
    Error::new(state, format!("{what}: {error}"))
        .with_hint("COPY reads and writes files of the server; use STDIN and STDOUT for the client's.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_ends_where_its_line_does_but_not_inside_quotes() {
        let csv = Rows::Csv { quote: b'"', escape: b'"' };
        let other = Rows::Csv { quote: b'\'', escape: b'\\' };
        for (rows, text, end) in [
            (Rows::Text, "a\"\nb\n", 3),
            (Rows::Text, "", 0),
            (csv, "a,\"b\n\"\"c\"\nd\n", 10),
            (csv, "\"\"\nd\n", 3),
            (other, "'a\\'\nb'\nc\n", 8),
            (other, "\"\n\n", 2),
        ] {
            assert_eq!(rows.end_of_first(text.as_bytes()), end, "{text:?} {rows:?}");
        }
    }
}
