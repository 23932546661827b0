//! Keeps the git commit and the target of the build for the records.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(target) = std::env::var("TARGET") {
        println!("cargo:rustc-env=MILLSTREAM_TARGET={target}");
    }
    // The reflog grows with every commit and checkout; without it (a shallow copy) HEAD must do.
    // A debug build is not worth a rebuild for it.
    let debug = std::env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    // In a linked work tree they lie elsewhere.
    let found = |name: &&str| git(&["rev-parse", "--git-path", name]);
    let mut paths = ["logs/HEAD", "HEAD"].iter().filter_map(found);
    if let Some(path) = paths.find(|path| !debug && Path::new(path).exists()) {
        println!("cargo:rerun-if-changed={path}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo:rustc-env=MILLSTREAM_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
