//! The Python package: its wheel, and the environment in which it is built and tested.
//!
//! The environment is kept in the target directory from one run to the next, until
//! `tests/python/requirements.txt` changes.

use crate::metadata;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REQUIREMENTS: &str = "tests/python/requirements.txt";
/// A virtual environment with the packages that build and test the package.
pub struct Environment {
    bin: PathBuf,
    wheels: PathBuf,
}

impl Environment {
    /// Finds or makes it.
    pub fn prepare(root: &Path) -> Result<Environment, String> {
        let home = metadata::target_directory(root)?.join("python");
        let (venv, ready) = (home.join("venv"), home.join("ready"));
        let environment = Environment { bin: venv.join("bin"), wheels: home.join("wheels") };
        let wanted = std::fs::read(root.join(REQUIREMENTS)).map_err(|error| error.to_string())?;
        if std::fs::read(&ready).is_ok_and(|there| there == wanted) {
            return Ok(environment);
        }
        let is_new = "import sys; sys.exit('it is older than 3.10' if sys.version_info < (3, 10) else 0)";
        succeed(Command::new("python3").args(["-c", is_new]))?;
        println!("making a Python environment in {}", venv.display());
        succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut install = environment.pip("600", "install");
        install.arg("--requirement").arg(root.join(REQUIREMENTS));
        // An index may fail once.
        succeed(&mut install).or_else(|_| succeed(&mut install))?;
        std::fs::write(&ready, wanted).map_err(|error| error.to_string())?;
        Ok(environment)
    }

    /// One of pip's commands, with a timeout in seconds: an index that does not answer must not delay
    /// everything else.
    fn pip(&self, seconds: &str, command: &str) -> Command {
        let mut pip = Command::new("timeout");
        pip.args(["--kill-after=5", seconds]).arg(self.bin.join("pip"));
        pip.args([command, "--quiet", "--disable-pip-version-check"]);
        pip
    }

    /// Builds the wheel with one of cargo's profiles, as the only one in its directory.
    pub fn build(&self, profile: &str) -> Command {
        // Old ones would be installed by mistake.
        let _ = std::fs::remove_dir_all(&self.wheels);
        let mut build = Command::new(self.bin.join("maturin"));
        build.args([
            "build",
            "--locked",
            "--profile",
            profile,
            "--manifest-path",
            "crates/python/Cargo.toml",
        ]);
        build.arg("--out").arg(&self.wheels);
        build
    }

    /// The wheel that was built.
    pub fn wheel(&self) -> Result<PathBuf, String> {
        let entries = std::fs::read_dir(&self.wheels).map_err(|error| error.to_string())?;
        let wheels = entries.flatten().map(|entry| entry.path());
        wheels.last().ok_or_else(|| format!("{} is empty", self.wheels.display()))
    }

    /// Installs a wheel and nothing else.
    pub fn install(&self, wheel: &Path) -> Command {
        let mut install = Command::new(self.bin.join("pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check"]);
        install.args(["--no-deps", "--force-reinstall"]).arg(wheel);
        install
    }

    /// Runs the tests on the installed package.
    pub fn test(&self) -> Command {
        let mut test = Command::new("timeout");
        test.args(["--kill-after=5", "600"]).arg(self.bin.join("python"));
        // From the environment alone, and without leaving anything beside the sources.
        test.args(["-I", "-B", "-X", "faulthandler", "-m", "pytest", "-q", "-p", "no:cacheprovider"]);
        test.arg("tests/python");
        test
    }
}

/// `cargo xtask wheel`: the wheel for distribution.
pub fn wheel(root: &Path) -> bool {
    let build = || {
        let environment = Environment::prepare(root)?;
        let mut build = environment.build("release");
        println!("$ {build:?}");
        if !build.current_dir(root).status().is_ok_and(|status| status.success()) {
            return Err("the wheel cannot be built".to_owned());
        }
        environment.wheel()
    };
    match build() {
        Ok(wheel) => println!("{}", wheel.display()),
        Err(error) => {
            println!("{error}");
            return false;
        }
    }
    true
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it failed");
            Err(format!("{}: {last}", command.get_program().display()))
        }
    }
}
