//! `millstream doctor`: whether this host is set up for the network load that it has.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use millstream_observe::doctor::{Root, examine};
use millstream_record::error::Error;
use serde_json::{Value, json};

use crate::output::{out, out_json};

/// For `doctor --help`.
pub const HELP: &str = "\
It reads files of /proc and /sys and changes nothing; counters are since the machine was started.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

/// Looks, and tells.
pub fn doctor(arguments: &Arguments) -> Result<ExitCode, Error> {
    let answers = examine(&Root(PathBuf::from("/")));
    if arguments.json {
        let checks = answers.iter().map(|answer| match &answer.found {
            Ok(found) => {
                let one = |one: &millstream_observe::doctor::Finding| {
                    json!({ "what": one.what, "remedy": one.remedy })
                };
                json!({ "check": answer.check, "found": found.iter().map(one).collect::<Vec<_>>() })
            }
            Err(why) => json!({ "check": answer.check, "absent": why.0 }),
        });
        let checks: Vec<Value> = checks.collect();
        out_json(json!({ "checks": checks }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for answer in &answers {
        match &answer.found {
            Ok(found) if found.is_empty() => text.push_str(&format!("ok    {}\n", answer.check)),
            Ok(found) => {
                for one in found {
                    text.push_str(&format!("look  {}: {}\n", answer.check, one.what));
                    text.push_str(&format!("      remedy: {}\n", one.remedy));
                }
            }
            Err(why) => {
                text.push_str(&format!("-     {}: not looked at, because {why}\n", answer.check))
            }
        }
    }
    out(&text)?;
    Ok(ExitCode::SUCCESS)
}
