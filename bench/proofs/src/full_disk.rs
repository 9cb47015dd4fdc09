//! A server on a file system that fills up. Every session sees what it acknowledges and none sees what it refuses (53100), before
//! and after it is killed. It accepts commits again once there is space.
//!
//! The file system is a `tmpfs` of this process and the servers that it starts, which no other process sees and which is gone
//! with the last of them.

use crate::Outcome;
use crate::server::Server;
use crate::wire_client::WireClient;
use firn_base::SqlState;
use firn_base::random::Random;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Arguments of `full-disk`.
#[derive(clap::Args)]
pub struct Options {
    /// The `firn` binary.
    #[arg(long, value_name = "FILE")]
    firn: PathBuf,
    /// Clients.
    #[arg(long, default_value_t = 4)]
    clients: u64,
    /// Size of the file system, in MiB.
    #[arg(long, default_value_t = 96)]
    size: u32,
}

/// What is removed to make space, in MiB.
const BALLAST: usize = 24;

/// How often each client is refused before it stops.
const REFUSALS: usize = 20;

/// Exit code if there is no way to mount a file system.
pub const UNAVAILABLE: u8 = 77;

/// Fills the disk and checks; `None` if no file system can be mounted.
pub fn run(options: Options) -> Result<Option<()>, Box<dyn std::error::Error + Send + Sync>> {
    let mount = match Mount::new(options.size) {
        Ok(mount) => mount,
        Err(error) => {
            eprintln!("no file system can be mounted: {error}");
            return Ok(None);
        }
    };
    let (directory, ballast) = (mount.0.path().join("data"), mount.0.path().join("ballast"));
    std::fs::write(&ballast, vec![1; BALLAST << 20])?;
    let mut server = Server::start(&options.firn, &directory)?;
    let mut client = WireClient::connect(&server.address)?;
    client.run_simply("CREATE TABLE rows (id bigint PRIMARY KEY, filler text); CREATE SEQUENCE numbers")?;

    let clients: Vec<_> = (0..options.clients)
        .map(|number| {
            let address = server.address.clone();
            std::thread::spawn(move || insert_until_refused(&address, number))
        })
        .collect();
    let mut acknowledged = BTreeSet::new();
    for client in clients {
        acknowledged.extend(client.join().expect("a client has panicked")?);
    }
    println!("{} rows, then the disk was full", acknowledged.len());
    same(&mut client, &acknowledged, "while the disk is full")?;

    // Whatever else a client does, it fails by itself.
    for sql in [
        "CREATE TABLE more AS SELECT number, repeat('x', 1000) FROM generate_series(1, 100000) AS number",
        "UPDATE rows SET filler = repeat('y', 12000)",
        "CREATE TABLE copy (LIKE rows INCLUDING ALL); INSERT INTO copy TABLE rows; INSERT INTO copy SELECT -id - 1, filler FROM rows",
    ] {
        match client.run_simply(sql) {
            Err(error) if error.state() == SqlState::DISK_FULL => {}
            Err(error) => return Err(format!("{sql}: {error}").into()),
            Ok(_) => return Err(format!("{sql}: there was space after all").into()),
        }
    }
    let rows: Vec<String> = (1..60_000).map(|id| format!("-{id},{}\n", "z".repeat(1000))).collect();
    match client.copy_in("COPY rows FROM STDIN (FORMAT csv)", rows.iter().map(String::as_bytes)) {
        Err(error) if error.state() == SqlState::DISK_FULL => {}
        outcome => return Err(format!("COPY: {outcome:?}").into()),
    }
    same(&mut client, &acknowledged, "after other statements")?;

    server.kill();
    let mut server = Server::start(&options.firn, &directory)?;
    let mut client = WireClient::connect(&server.address)?;
    same(&mut client, &acknowledged, "after a kill, on the full disk")?;

    std::fs::remove_file(&ballast)?;
    let begun = Instant::now();
    while let Err(error) = client.run_simply("INSERT INTO rows VALUES (-1, repeat('w', 10000))") {
        if error.state() != SqlState::DISK_FULL || begun.elapsed() > Duration::from_secs(10) {
            return Err(format!("with space again: {error}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    acknowledged.insert(-1);
    same(&mut client, &acknowledged, "with space again")?;
    // A checkpoint needs space for what it writes beside the log that it replaces.
    for sql in [
        "SELECT nextval('numbers')",
        "TRUNCATE rows",
        "INSERT INTO rows SELECT number, 'short' FROM generate_series(1, 100) AS number",
        "CHECKPOINT",
    ] {
        client.run_simply(sql)?;
    }
    acknowledged = (1..=100).collect();
    same(&mut client, &acknowledged, "after a checkpoint")?;
    server.kill();
    let mut server = Server::start(&options.firn, &directory)?;
    same(&mut WireClient::connect(&server.address)?, &acknowledged, "after another kill")?;
    server.stop()?;
    println!("nothing is lost, and nothing that was refused is there");
    Ok(Some(()))
}

/// Inserts rows of different lengths, and returns the ids of those that were acknowledged.
fn insert_until_refused(address: &str, client: u64) -> Result<Vec<i64>, firn_base::Error> {
    let mut connection = WireClient::connect(address)?;
    let mut random = Random::seeded(client);
    let (mut acknowledged, mut refusals) = (Vec::new(), 0);
    for number in 0.. {
        let id = (client << 32 | number) as i64;
        let length = random.uniform(100, 20_000);
        let sql = format!("INSERT INTO rows SELECT {id}, repeat(md5('{id}'), {length} / 32)");
        match connection.run_simply(&sql) {
            Ok(_) => acknowledged.push(id),
            Err(error) if error.state() == SqlState::DISK_FULL => {
                refusals += 1;
                if refusals == REFUSALS {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(acknowledged)
}

/// Whether the table has these rows.
fn same(client: &mut WireClient, expected: &BTreeSet<i64>, when: &str) -> Outcome {
    let rows = client.run_simply("SELECT id FROM rows ORDER BY id")?.rows;
    let found = rows.iter().map(|row| row[0].as_deref().expect("a key is not null").parse());
    let found: BTreeSet<i64> = found.collect::<Result<_, _>>()?;
    let (missing, surplus) = (expected.difference(&found).count(), found.difference(expected).count());
    match (missing, surplus) {
        (0, 0) => Ok(()),
        _ => {
            Err(format!("{when}: {missing} acknowledged rows are missing, {surplus} refused ones are there")
                .into())
        }
    }
}

/// A file system that only this process and its children see.
struct Mount(tempfile::TempDir);

impl Mount {
    /// Mounts one of so many MiB.
    fn new(size: u32) -> io::Result<Mount> {
        let directory = tempfile::Builder::new().prefix("firn-full-disk").tempdir()?;
        // SAFETY: the call takes no address. This process has one thread yet.
        if checked(unsafe { libc::unshare(libc::CLONE_NEWNS) }).is_err() {
            // SAFETY: the calls take no address.
            let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
            // SAFETY: as above.
            checked(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
            std::fs::write("/proc/self/setgroups", "deny")?;
            std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        let (kind, options) = (c"tmpfs", text(format!("size={size}m").as_bytes()));
        let place = text(directory.path().as_os_str().as_encoded_bytes());
        let null = std::ptr::null();
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        // SAFETY: the strings end with a zero and live until the calls return, which keep none of them.
        checked(unsafe { libc::mount(null, c"/".as_ptr(), null, flags, null.cast()) })?;
        // SAFETY: as above.
        checked(unsafe {
            libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast())
        })?;
        Ok(Mount(directory))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let place = text(self.0.path().as_os_str().as_encoded_bytes());
        // SAFETY: the string ends with a zero and lives until the call returns.
        let _ = checked(unsafe { libc::umount2(place.as_ptr(), libc::MNT_DETACH) });
    }
}

fn checked(outcome: libc::c_int) -> io::Result<()> {
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn text(bytes: &[u8]) -> CString {
    CString::new(bytes).expect("there is no zero in it")
}
