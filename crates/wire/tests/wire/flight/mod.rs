//! Flight SQL over the loopback interface, with arrow-flight's client. `tests/clients` tests ADBC and
//! JDBC.

mod catalog;
mod cold;
mod ends;
mod ingestion;
mod sessions;
mod statements;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::display::array_value_to_string;
use arrow_flight::FlightInfo;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_schema::DataType;
use firn_session::Database;
use firn_wire::{FlightConfig, FlightServer};
use futures::TryStreamExt;
use prost::bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

pub type Client = FlightSqlServiceClient<Channel>;
pub type Result<T> = std::result::Result<T, FlightError>;

/// A server with a database in memory, and a runtime for its clients.
pub struct Fixture {
    pub database: Database,
    pub server: FlightServer,
    pub runtime: tokio::runtime::Runtime,
}

pub fn serve() -> Fixture {
    serve_with(|_| {})
}

pub fn serve_with(configure: impl FnOnce(&mut FlightConfig)) -> Fixture {
    serve_database(Database::memory().unwrap(), configure)
}

pub fn serve_database(database: Database, configure: impl FnOnce(&mut FlightConfig)) -> Fixture {
    let mut config = FlightConfig { listen: "127.0.0.1:0".to_owned(), ..FlightConfig::default() };
    configure(&mut config);
    let server = FlightServer::start(database.clone(), config).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    Fixture { database, server, runtime }
}

impl Fixture {
    /// Has the database execute statements, in this process.
    pub fn execute(&self, sql: &str) {
        self.locally(|database| database.connect().execute(sql).map(|_| ()).unwrap());
    }

    /// The one number that a query yields, in this process.
    pub fn number(&self, sql: &str) -> i64 {
        self.locally(|database| {
            let batches = database.connect().query(sql).unwrap();
            batches[0].column(0).as_primitive::<Int64Type>().value(0)
        })
    }

    /// On a thread of its own: statements block, which the thread of a client may not.
    pub fn locally<T: Send>(&self, work: impl FnOnce(&Database) -> T + Send) -> T {
        let database = &self.database;
        std::thread::scope(|scope| scope.spawn(|| work(database)).join().unwrap())
    }

    /// Runs a test of a client; nothing takes longer than a minute.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let limit = std::time::Duration::from_secs(60);
        self.runtime.block_on(async { tokio::time::timeout(limit, work).await.expect("it ends in time") })
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.server.local_addr())).unwrap()
    }

    pub async fn client(&self) -> Client {
        FlightSqlServiceClient::new(self.endpoint().connect().await.unwrap())
    }
}

/// The rows of an info that a client got.
pub async fn fetch(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>> {
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let rows = client.do_get(endpoint.ticket.unwrap()).await?;
        batches.extend(rows.try_collect::<Vec<_>>().await?);
    }
    Ok(batches)
}

/// The rows of a query.
pub async fn query(client: &mut Client, sql: &str, transaction: Option<&Bytes>) -> Result<Vec<RecordBatch>> {
    let info = client.execute(sql.to_owned(), transaction.cloned()).await?;
    fetch(client, info).await
}

/// The one number of a query.
pub async fn number(client: &mut Client, sql: &str, transaction: Option<&Bytes>) -> Result<i64> {
    Ok(query(client, sql, transaction).await?[0].column(0).as_primitive::<Int64Type>().value(0))
}

/// Rows as text.
pub fn shown(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| match (column.is_null(row), column.data_type()) {
                (true, _) => "NULL".to_owned(),
                (false, DataType::Timestamp(_, Some(_))) => {
                    let utc = column.as_primitive::<TimestampMicrosecondType>().clone();
                    array_value_to_string(&utc.with_timezone_opt::<String>(None), row).unwrap() + "Z"
                }
                (false, _) => array_value_to_string(column, row).unwrap(),
            };
            rows.push(batch.columns().iter().map(cell).collect());
        }
    }
    rows
}

/// The SQLSTATE of an error.
pub fn state<T>(result: Result<T>) -> String {
    let Err(error) = result else { panic!("no error") };
    let text = error.to_string();
    let Some((_, rest)) = text.split_once("(SQLSTATE ") else { panic!("no SQLSTATE: {text}") };
    rest[..5].to_owned()
}
