//! Cargo's metadata about the packages of this workspace and their dependencies.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One package.
pub struct Package {
    pub name: String,
    pub version: String,
    /// Its licence as an SPDX expression, if it has one.
    pub licence: Option<String>,
    pub is_member: bool,
    pub dependencies: Vec<Dependency>,
}

/// A dependency that a manifest names.
pub struct Dependency {
    pub name: String,
    /// Needed by tests, examples and benchmarks only.
    pub is_dev: bool,
}

/// The directory of cargo's build output.
pub fn target_directory(root: &Path) -> Result<PathBuf, String> {
    let json = output(
        Command::new("cargo")
            .args(["metadata", "--format-version", "1", "--locked", "--no-deps"])
            .current_dir(root),
    )?;
    let metadata: Value = serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(PathBuf::from(text(&metadata["target_directory"])))
}

/// The members and all their dependencies on this machine's platform.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let host = output(Command::new("rustc").arg("-vV"))?;
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let json = output(
        Command::new("cargo")
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host])
            .current_dir(root),
    )?;
    let metadata: Value = serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    let members = list(&metadata["workspace_members"]);
    let built: Vec<&Value> = list(&metadata["resolve"]["nodes"]).iter().map(|node| &node["id"]).collect();
    Ok(list(&metadata["packages"])
        .iter()
        .filter(|package| built.contains(&&package["id"]))
        .map(|package| Package {
            name: text(&package["name"]),
            version: text(&package["version"]),
            licence: package["license"].as_str().map(str::to_owned),
            is_member: members.contains(&package["id"]),
            dependencies: list(&package["dependencies"])
                .iter()
                .map(|dependency| Dependency {
                    name: text(&dependency["name"]),
                    is_dev: dependency["kind"].as_str() == Some("dev"),
                })
                .collect(),
        })
        .collect())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed"));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{command:?}: {error}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
