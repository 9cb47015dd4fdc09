//! TATP's transactions as SQL, as in its description: as an application runs them, by the
//! embedded API or over a socket. Those of one statement have no block around them.

use super::Number;
use super::input::{Input, Inputs};
use crate::driver::{Client, Done};
use crate::sql_client::SqlClient;
use firn_base::{Result, SqlState, Value};

/// The statements, prepared.
struct Statements<S> {
    begin: S,
    commit: S,
    rollback: S,
    subscriber_data: S,
    new_destination: S,
    access_data: S,
    set_bit: S,
    set_facility_data: S,
    set_location: S,
    subscriber_by_number: S,
    facilities: S,
    insert_forwarding: S,
    delete_forwarding: S,
}

impl<S> Statements<S> {
    fn prepare(client: &mut impl SqlClient<Statement = S>) -> Result<Statements<S>> {
        let mut prepare = |sql: &str| client.prepare(sql);
        Ok(Statements {
            begin: prepare("BEGIN")?,
            commit: prepare("COMMIT")?,
            rollback: prepare("ROLLBACK")?,
            subscriber_data: prepare(
                "SELECT s_id, sub_nbr, bit_1, bit_2, bit_3, bit_4, bit_5, bit_6, bit_7, bit_8, bit_9, bit_10,
                 hex_1, hex_2, hex_3, hex_4, hex_5, hex_6, hex_7, hex_8, hex_9, hex_10,
                 byte2_1, byte2_2, byte2_3, byte2_4, byte2_5, byte2_6, byte2_7, byte2_8, byte2_9, byte2_10,
                 msc_location, vlr_location FROM subscriber WHERE s_id = $1",
            )?,
            new_destination: prepare(
                "SELECT cf.numberx FROM special_facility AS sf, call_forwarding AS cf
                 WHERE sf.s_id = $1 AND sf.sf_type = $2 AND sf.is_active = 1
                 AND cf.s_id = sf.s_id AND cf.sf_type = sf.sf_type
                 AND cf.start_time <= $3 AND $4 < cf.end_time",
            )?,
            access_data: prepare(
                "SELECT data1, data2, data3, data4 FROM access_info WHERE s_id = $1 AND ai_type = $2",
            )?,
            set_bit: prepare("UPDATE subscriber SET bit_1 = $2 WHERE s_id = $1")?,
            set_facility_data: prepare(
                "UPDATE special_facility SET data_a = $3 WHERE s_id = $1 AND sf_type = $2 RETURNING data_a",
            )?,
            set_location: prepare("UPDATE subscriber SET vlr_location = $2 WHERE sub_nbr = $1")?,
            subscriber_by_number: prepare("SELECT s_id FROM subscriber WHERE sub_nbr = $1")?,
            facilities: prepare("SELECT sf_type FROM special_facility WHERE s_id = $1")?,
            insert_forwarding: prepare(
                "INSERT INTO call_forwarding (s_id, sf_type, start_time, end_time, numberx)
                 VALUES ($1, $2, $3, $4, $5)",
            )?,
            delete_forwarding: prepare(
                "DELETE FROM call_forwarding WHERE s_id = $1 AND sf_type = $2 AND start_time = $3
                 RETURNING start_time",
            )?,
        })
    }
}

/// One client: runs transactions one after another.
pub struct SqlWorker<C: SqlClient> {
    client: C,
    statements: Statements<C::Statement>,
    inputs: Inputs,
    input: Input,
    /// Whether a block is open.
    in_block: bool,
}

impl<C: SqlClient> SqlWorker<C> {
    /// Client `number` over this connection to a database with this number of subscribers. Its inputs are those of the
    /// native client of that number.
    pub fn new(mut client: C, subscribers: i32, seed: u64, number: usize) -> Result<SqlWorker<C>> {
        let statements = Statements::prepare(&mut client)?;
        let inputs = Inputs::new(subscribers, seed, number);
        let input = Input::GetSubscriberData { s_id: 1 };
        Ok(SqlWorker { client, statements, inputs, input, in_block: false })
    }

    fn begin(&mut self) -> Result<()> {
        self.client.run(&self.statements.begin, &[])?;
        self.in_block = true;
        Ok(())
    }

    fn commit(&mut self, displayed: i64) -> Result<Done> {
        self.client.run(&self.statements.commit, &[])?;
        self.in_block = false;
        Ok(done(displayed))
    }

    fn roll_back(&mut self) -> Result<Done> {
        self.client.run(&self.statements.rollback, &[])?;
        self.in_block = false;
        Ok(NOTHING)
    }

    fn get_subscriber_data(&mut self, s_id: i32) -> Result<Done> {
        let rows = self.client.run(&self.statements.subscriber_data, &[Value::Integer(s_id)])?;
        Ok(done(rows[0][1..].iter().map(shown).sum()))
    }

    fn get_new_destination(&mut self, s_id: i32, sf_type: i16, start: i16, end: i16) -> Result<Done> {
        let [sf_type, start, end] = [sf_type, start, end].map(Value::SmallInt);
        let parameters = [Value::Integer(s_id), sf_type, start, end];
        let rows = self.client.run(&self.statements.new_destination, &parameters)?;
        Ok(if rows.is_empty() { NOTHING } else { done(rows.iter().flatten().map(shown).sum()) })
    }

    fn get_access_data(&mut self, s_id: i32, ai_type: i16) -> Result<Done> {
        let parameters = [Value::Integer(s_id), Value::SmallInt(ai_type)];
        let rows = self.client.run(&self.statements.access_data, &parameters)?;
        Ok(if rows.is_empty() { NOTHING } else { done(rows.iter().flatten().map(shown).sum()) })
    }

    fn update_subscriber_data(&mut self, s_id: i32, sf_type: i16, bit: i16, data: i16) -> Result<Done> {
        self.begin()?;
        let (s_id, [sf_type, bit, data]) = (Value::Integer(s_id), [sf_type, bit, data].map(Value::SmallInt));
        self.client.run(&self.statements.set_bit, &[s_id.clone(), bit])?;
        let set = self.client.run(&self.statements.set_facility_data, &[s_id, sf_type, data])?;
        match set.first() {
            Some(row) => self.commit(shown(&row[0])),
            None => self.roll_back(),
        }
    }

    fn update_location(&mut self, number: Number, location: i32) -> Result<Done> {
        self.client.run(&self.statements.set_location, &[text(&number), Value::Integer(location)])?;
        Ok(done(i64::from(location)))
    }

    fn insert_call_forwarding(
        &mut self,
        number: Number,
        sf_type: i16,
        [start, end]: [i16; 2],
        target: Number,
    ) -> Result<Done> {
        self.begin()?;
        let s_id = self.by_number(number)?;
        let facilities = self.client.run(&self.statements.facilities, std::slice::from_ref(&s_id))?;
        let sf_type = Value::SmallInt(sf_type);
        if !facilities.iter().any(|row| row[0] == sf_type) {
            return self.roll_back();
        }
        let forwarding = [s_id, sf_type, Value::SmallInt(start), Value::SmallInt(end), text(&target)];
        match self.client.run(&self.statements.insert_forwarding, &forwarding) {
            Ok(_) => self.commit(i64::from(start)),
            Err(error) if error.state() == SqlState::UNIQUE_VIOLATION => self.roll_back(),
            Err(error) => Err(error),
        }
    }

    fn delete_call_forwarding(&mut self, number: Number, sf_type: i16, start: i16) -> Result<Done> {
        self.begin()?;
        let forwarding = [self.by_number(number)?, Value::SmallInt(sf_type), Value::SmallInt(start)];
        match self.client.run(&self.statements.delete_forwarding, &forwarding)?.is_empty() {
            true => self.roll_back(),
            false => self.commit(1),
        }
    }

    /// The subscriber with that telephone number.
    fn by_number(&mut self, number: Number) -> Result<Value> {
        let mut rows = self.client.run(&self.statements.subscriber_by_number, &[text(&number)])?;
        Ok(rows.pop().expect("every subscriber has a number").remove(0))
    }
}

impl<C: SqlClient> Client for SqlWorker<C> {
    const KINDS: &'static [&'static str] = &Input::NAMES;

    fn next_input(&mut self) -> usize {
        self.input = self.inputs.next();
        self.input.kind()
    }

    fn run(&mut self) -> Result<Done> {
        let done = match self.input {
            Input::GetSubscriberData { s_id } => self.get_subscriber_data(s_id),
            Input::GetNewDestination { s_id, sf_type, start, end } => {
                self.get_new_destination(s_id, sf_type, start, end)
            }
            Input::GetAccessData { s_id, ai_type } => self.get_access_data(s_id, ai_type),
            Input::UpdateSubscriberData { s_id, sf_type, bit, data } => {
                self.update_subscriber_data(s_id, sf_type, bit, data)
            }
            Input::UpdateLocation { number, location } => self.update_location(number, location),
            Input::InsertCallForwarding { number, sf_type, start, end, target } => {
                self.insert_call_forwarding(number, sf_type, [start, end], target)
            }
            Input::DeleteCallForwarding { number, sf_type, start } => {
                self.delete_call_forwarding(number, sf_type, start)
            }
        };
        if done.is_err() && self.in_block {
            // The block has failed; if the connection is broken, the block has ended.
            let _ = self.client.run(&self.statements.rollback, &[]);
            self.in_block = false;
        }
        done
    }
}

/// A transaction that finds no row has failed, as the description requires.
const NOTHING: Done = Done { committed: false, lsn: None, displayed: 0 };

fn done(displayed: i64) -> Done {
    Done { committed: true, lsn: None, displayed }
}

fn text(number: &Number) -> Value {
    Value::Text(number.as_str().to_owned())
}

/// The number that a terminal displays for a value: itself, or the length of a text.
fn shown(value: &Value) -> i64 {
    match value {
        Value::SmallInt(value) => i64::from(*value),
        Value::Integer(value) => i64::from(*value),
        Value::Text(value) => value.len() as i64,
        other => panic!("{other:?} is neither a number nor a text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tatp::{Tatp, Worker, load};
    use crate::tpcc::load::LoadProgress;
    use firn_session::Database;

    const SUBSCRIBERS: i32 = 500;

    fn population() -> Database {
        let database = Database::memory().unwrap();
        load(database.engine(), SUBSCRIBERS, 3, 1, &LoadProgress::default()).unwrap();
        database
    }

    /// A client's transactions: kind, whether it committed, what it displayed.
    type Transactions = Vec<(usize, bool, i64)>;

    /// Runs some transactions of a client. Returns their results, and the final content of the tables.
    fn played(mut client: impl Client, database: &Database) -> (Transactions, Vec<Vec<Vec<Value>>>) {
        let mut play = || {
            let kind = client.next_input();
            let done = client.run().unwrap();
            (kind, done.committed, done.displayed)
        };
        let transactions = (0..5_000).map(|_| play()).collect();
        let contents = ["subscriber", "access_info", "special_facility", "call_forwarding"];
        let mut connection = database.connect();
        let contents = contents.map(|table| {
            SqlClient::run_text(&mut connection, &format!("SELECT * FROM {table} ORDER BY 1, 2, 3")).unwrap()
        });
        (transactions, contents.into())
    }

    #[test]
    fn clients_in_sql_do_what_native_ones_do() {
        let (native, sql) = (population(), population());
        let tatp = Tatp::open(native.engine()).unwrap();
        let (transactions, left) = played(Worker::new(&tatp, 9, 1, 5), &native);
        let worker = SqlWorker::new(sql.connect(), SUBSCRIBERS, 9, 1).unwrap();
        let (in_sql, left_in_sql) = played(worker, &sql);
        assert_eq!(transactions, in_sql);
        assert!(left == left_in_sql, "the tables differ");
        for kind in 0..Input::NAMES.len() {
            assert!(transactions.iter().any(|(of, committed, _)| (*of, *committed) == (kind, true)));
        }
    }
}
