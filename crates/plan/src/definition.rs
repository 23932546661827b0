//! The definition of an experiment: TOML in, checked values out.
//!
//! ```toml
//! name = "buffers"
//! question = "Which socket buffer does the link need?"
//! workload = "tcp_stream"            # or a list
//! repeats = 5                        # blocks
//! duration_s = 4                     # measured
//! warmup_s = 1                       # before it
//! seed = 7                           # optional: else drawn and recorded
//! steady_cpus = true                 # optional: runs wait for the hosts' CPUs to be near each other
//! budget = true                      # optional: the last block tells where the time goes, and does not count
//!
//! [factors]
//! stack = ["kernel", "millstream"]
//! socket_buffer_bytes = ["auto", 262144]
//!
//! [factors.tcp_stream]               # factors of one workload alone
//! direction = ["send", "recv"]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use millstream_foreign::shown;
use millstream_record::error::Error;
use toml::{Table, Value};

use super::factor::Factor;
use super::factors::{FACTORS, ROUTERS, STACKS};
use super::limits;
use super::workload::{ALL, Workload};

/// Levels by the name of their factor.
pub type Choices = BTreeMap<String, Vec<String>>;

/// A checked definition: every key is known and every level is allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Short name, used in ids: letters, digits, `-`, `_`.
    pub name: String,
    /// The question in one sentence; may be empty.
    pub question: String,
    /// The workloads, in the order in which they are given, each once.
    pub workloads: Vec<Workload>,
    /// Stacks in order; the first is the base of comparisons.
    pub stacks: Vec<String>,
    /// Factors of all workloads that know them.
    pub factors: Choices,
    /// Factors of one workload, going before `factors`.
    pub own_factors: BTreeMap<Workload, Choices>,
    /// Blocks.
    pub repeats: u32,
    /// Seed of the order of the runs and of their ports, when given.
    pub seed: Option<u64>,
    /// Seconds of a run that are measured.
    pub duration_s: f64,
    /// Seconds of a run before the measured ones.
    pub warmup_s: f64,
    /// True when a run waits until the CPUs of its hosts are near each other, and is made again
    /// when they were not.
    pub steady_cpus: bool,
    /// True when the budget of threads is taken beside the runs of the last block, whose results do
    /// not count therefore.
    pub budget: bool,
}

/// Changes that the command line makes to a definition; `None` leaves what the definition says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--stack`.
    pub stacks: Option<Vec<String>>,
    /// `--repeats`.
    pub repeats: Option<u32>,
    /// `--duration`, seconds.
    pub duration_s: Option<f64>,
    /// `--warmup`, seconds.
    pub warmup_s: Option<f64>,
    /// `--seed`.
    pub seed: Option<u64>,
    /// `--steady-cpus`.
    pub steady_cpus: Option<bool>,
    /// `--set factor=a,b`, in order.
    pub set: Vec<(String, Vec<String>)>,
}

/// Factors that only say how another factor works: the factor, that other one, and an example of a
/// level of the other with which the factor means something.
const COMPANIONS: &[(&str, &str, &str)] = &[
    ("engine_cpu", "engine", "net"),
    ("loss_run_packets", "loss_percent", "1"),
    ("reorder_by_us", "reorder_percent", "5"),
    ("queue_packets", "rate_mbit", "100"),
];

const KEYS: &str = "name, question, description, workload, repeats, seed, duration_s, warmup_s, steady_cpus, budget, factors";

impl Definition {
    /// Reads a definition; `source` names it in errors. The error is one line with the key, the
    /// value and what is allowed.
    pub fn parse(source: &str, text: &str) -> Result<Self, Error> {
        let refuse = |why: String| Error::Refused(format!("{source}: {why}"));
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let before = error.span().map_or("", |span| &text[..span.start.min(text.len())]);
            let line = before.matches('\n').count() + 1;
            refuse(format!("not TOML: {} (line {line})", error.message()))
        })?;
        Self::read(&table).map_err(refuse)
    }

    fn read(table: &Table) -> Result<Self, String> {
        let mut definition = Definition {
            name: String::new(),
            question: String::new(),
            workloads: Vec::new(),
            stacks: STACKS.iter().map(|&s| s.to_owned()).collect(),
            factors: Choices::new(),
            own_factors: BTreeMap::new(),
            repeats: limits::DEFAULT_REPEATS,
            seed: None,
            duration_s: limits::DEFAULT_DURATION_S,
            warmup_s: limits::DEFAULT_WARMUP_S,
            steady_cpus: true,
            budget: false,
        };
        for (key, value) in table {
            match key.as_str() {
                "name" => definition.name = name(value)?,
                "question" | "description" => definition.question = words(key, value)?,
                "workload" => definition.workloads = workloads(value)?,
                "repeats" => {
                    definition.repeats =
                        whole(key, value, 1, u64::from(limits::REPEATS_LIMIT))? as u32;
                }
                "seed" => definition.seed = Some(whole(key, value, 0, i64::MAX as u64)?),
                "duration_s" => {
                    definition.duration_s = duration("key 'duration_s'", seconds(key, value)?)?
                }
                "warmup_s" => definition.warmup_s = warmup("key 'warmup_s'", seconds(key, value)?)?,
                "steady_cpus" => definition.steady_cpus = yes_or_no(key, value)?,
                "budget" => definition.budget = yes_or_no(key, value)?,
                "factors" => {}
                _ => return Err(format!("unknown key '{key}'; allowed: {KEYS}")),
            }
        }
        if definition.name.is_empty() {
            return Err("key 'name' is missing; give the experiment a short name".into());
        }
        if definition.workloads.is_empty() {
            return Err(format!("key 'workload' is missing; allowed: {}", workload_names()));
        }
        match table.get("factors") {
            None => {}
            Some(Value::Table(factors)) => definition.read_factors(factors)?,
            Some(other) => return Err(format!("key 'factors' is {other}, not a table")),
        }
        definition.check_path()?;
        definition.check_companions()?;
        Ok(definition)
    }

    /// Refuses factors and links of the impaired path where the experiment has another path, too,
    /// and links that the impaired path cannot have.
    fn check_path(&self) -> Result<(), String> {
        for &workload in &self.workloads {
            let levels = |name| self.levels(workload, Factor::of(name).expect("it is in the list"));
            let paths = levels("path");
            if paths.iter().any(|level| level == "impaired") {
                if let Some(link) = levels("link").iter().find(|level| *level != "tap") {
                    return Err(format!(
                        "path = \"impaired\" has TAP devices; take out link = \"{link}\" (--set link={link})"
                    ));
                }
                if paths.len() == 1 {
                    continue;
                }
            }
            let beyond = |factor: &&Factor| {
                factor.needs_impaired
                    && self.levels(workload, factor).iter().any(|level| level != factor.default)
            };
            if let Some(factor) = FACTORS.iter().find(beyond) {
                return Err(format!(
                    "factor '{}' needs the path between two TAP devices; \
                     give path = \"impaired\" (--set path=impaired)",
                    factor.name
                ));
            }
        }
        Ok(())
    }

    /// Refuses a factor that only says how another works where that other is off: it would be
    /// recorded as a level, and change nothing.
    fn check_companions(&self) -> Result<(), String> {
        for &workload in &self.workloads {
            // Nothing but the default, which is what both mean where nobody asks.
            let is_off = |name: &str| {
                Factor::of(name).is_none_or(|factor| {
                    self.levels(workload, factor).iter().all(|level| level == factor.default)
                })
            };
            let vain = COMPANIONS.iter().find(|(name, other, _)| !is_off(name) && is_off(other));
            if let Some((name, other, example)) = vain {
                let off = Factor::of(other).map_or("", |factor| factor.default);
                return Err(format!(
                    "factor '{name}' changes nothing while {other} is {off}; give another, as \
                     {other} = \"{example}\" (--set {other}={example})"
                ));
            }
        }
        Ok(())
    }

    fn read_factors(&mut self, table: &Table) -> Result<(), String> {
        for (key, value) in table {
            if let (Some(workload), Value::Table(own)) = (Workload::of(key), value) {
                if !self.workloads.contains(&workload) {
                    return Err(format!(
                        "'factors.{key}' is for a workload that the experiment does not run"
                    ));
                }
                for (name, value) in own {
                    let full = format!("factors.{key}.{name}");
                    if name == "stack" {
                        return Err(format!(
                            "'{full}': the stacks are those of all workloads; give them as 'factors.stack'"
                        ));
                    }
                    let levels = levels(&full, name, &[workload], &texts(&full, value)?)?;
                    self.own_factors.entry(workload).or_default().insert(name.clone(), levels);
                }
                continue;
            }
            let full = format!("factors.{key}");
            let texts = texts(&full, value)?;
            if key == "stack" {
                self.stacks = stacks(&full, &texts, self.measurable())?;
            } else {
                let levels = levels(&full, key, &self.workloads, &texts)?;
                self.factors.insert(key.clone(), levels);
            }
        }
        Ok(())
    }

    /// Applies what the command line says, with the same checks.
    pub fn apply(&mut self, overrides: &Overrides) -> Result<(), Error> {
        self.try_apply(overrides).map_err(Error::Refused)
    }

    fn try_apply(&mut self, overrides: &Overrides) -> Result<(), String> {
        if let Some(repeats) = overrides.repeats {
            if !(1..=limits::REPEATS_LIMIT).contains(&repeats) {
                let limit = limits::REPEATS_LIMIT;
                return Err(format!(
                    "'--repeats' is {repeats}; allowed: a whole number from 1 to {limit}"
                ));
            }
            self.repeats = repeats;
        }
        if let Some(value) = overrides.duration_s {
            self.duration_s = duration("'--duration'", value)?;
        }
        if let Some(value) = overrides.warmup_s {
            self.warmup_s = warmup("'--warmup'", value)?;
        }
        if let Some(seed) = overrides.seed {
            // A definition is kept as TOML, whose whole numbers end there.
            let limit = i64::MAX as u64;
            if seed > limit {
                return Err(format!(
                    "'--seed' is {seed}; allowed: a whole number from 0 to {limit}"
                ));
            }
            self.seed = Some(seed);
        }
        self.steady_cpus = overrides.steady_cpus.unwrap_or(self.steady_cpus);
        if let Some(texts) = &overrides.stacks {
            self.stacks = stacks("--stack", texts, self.measurable())?;
        }
        for (at, (name, texts)) in overrides.set.iter().enumerate() {
            if overrides.set[..at].iter().any(|(other, _)| other == name) {
                return Err(format!("'--set {name}' is there twice; give all its levels in one"));
            }
            let option = format!("--set {name}");
            if name == "stack" {
                self.stacks = stacks(&option, texts, self.measurable())?;
                continue;
            }
            let levels = levels(&option, name, &self.workloads, texts)?;
            self.own_factors.values_mut().for_each(|own| drop(own.remove(name)));
            self.factors.insert(name.clone(), levels);
        }
        self.check_path()?;
        self.check_companions()?;
        self.check_stacks(&overrides.set)?;
        self.check_size()
    }

    /// Refuses `--set` of a factor that the kernel does not know when only the kernel is measured:
    /// it would change nothing. A file may name such factors all the same, as `--stack` can leave
    /// the kernel alone of its stacks.
    fn check_stacks(&self, set: &[(String, Vec<String>)]) -> Result<(), String> {
        let is_vain = |factor: &Factor, levels: &[String]| {
            factor.millstream_only && levels.iter().any(|level| level != factor.default)
        };
        let vain = set
            .iter()
            .filter(|_| self.stacks.iter().all(|stack| stack == "kernel"))
            .find(|(name, levels)| Factor::of(name).is_some_and(|one| is_vain(one, levels)));
        match vain {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "'--set {name}' changes nothing on {}; leave it away, or give the stack, too (--stack {})",
                self.stacks.join(", "),
                self.measurable().join(",")
            )),
        }
    }

    /// Returns the stacks that all its workloads can be measured on.
    fn measurable(&self) -> &'static [&'static str] {
        if self.workloads.iter().all(|workload| workload.is_routed()) { ROUTERS } else { STACKS }
    }

    /// Returns the number of runs of a block: one of each configuration.
    fn block_runs(&self) -> u64 {
        let of = |workload: Workload, stack: &String| {
            let factors = FACTORS.iter().filter(|factor| factor.applies(workload, stack));
            let levels = factors.map(|factor| self.levels(workload, factor).len() as u64);
            levels.fold(1, u64::saturating_mul)
        };
        let by_stack = |&workload| self.stacks.iter().map(move |stack| of(workload, stack));
        self.workloads.iter().flat_map(by_stack).fold(0, u64::saturating_add)
    }

    /// Refuses more runs than anybody waits for: they are a slip, and their plan is held in memory.
    fn check_size(&self) -> Result<(), String> {
        let (block, repeats, limit) = (self.block_runs(), self.repeats, limits::RUNS_LIMIT);
        let runs = block.saturating_mul(repeats.into());
        if runs <= limit {
            return Ok(());
        }
        Err(format!(
            "{block} configurations, 'repeats' {repeats}: {runs} runs; allowed: up to {limit}; \
             take levels out of 'factors', or repeat less often"
        ))
    }

    /// Returns the levels of a factor for one workload: those that are given, else its default.
    pub fn levels(&self, workload: Workload, factor: &Factor) -> Vec<String> {
        let own = self.own_factors.get(&workload).and_then(|own| own.get(factor.name));
        let asked = own.or_else(|| self.factors.get(factor.name));
        asked.cloned().unwrap_or_else(|| vec![factor.default.to_owned()])
    }

    /// Returns true when the experiment names this factor for the workload.
    pub fn names(&self, workload: Workload, factor: &str) -> bool {
        self.factors.contains_key(factor)
            || self.own_factors.get(&workload).is_some_and(|own| own.contains_key(factor))
    }

    /// Returns the definition as TOML that [`Definition::parse`] reads back.
    pub fn to_toml(&self) -> String {
        let Self { name, question, workloads, stacks, factors, own_factors, .. } = self;
        let quoted = |text: &str| Value::from(text).to_string();
        let list = |texts: &[String]| {
            let items: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", items.join(", "))
        };
        let names: Vec<String> = workloads.iter().map(|w| w.name().to_owned()).collect();
        let mut text = format!("name = {}\nquestion = {}\n", quoted(name), quoted(question));
        let _ = writeln!(text, "workload = {}\nrepeats = {}", list(&names), self.repeats);
        if let Some(seed) = self.seed {
            let _ = writeln!(text, "seed = {seed}");
        }
        let _ = writeln!(text, "warmup_s = {:?}", self.warmup_s);
        let _ = writeln!(text, "duration_s = {:?}", self.duration_s);
        let _ = writeln!(text, "steady_cpus = {}", self.steady_cpus);
        if self.budget {
            let _ = writeln!(text, "budget = true");
        }
        let _ = writeln!(text, "\n[factors]\nstack = {}", list(stacks));
        for (name, levels) in factors {
            let _ = writeln!(text, "{name} = {}", list(levels));
        }
        for (workload, own) in own_factors.iter().filter(|(_, own)| !own.is_empty()) {
            let _ = writeln!(text, "\n[factors.{}]", workload.name());
            for (name, levels) in own {
                let _ = writeln!(text, "{name} = {}", list(levels));
            }
        }
        text
    }
}

fn workload_names() -> String {
    ALL.iter().map(|workload| workload.name()).collect::<Vec<_>>().join(", ")
}

fn words(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(shown).ok_or_else(|| format!("key '{key}' is {value}, not a text"))
}

/// Returns true when an experiment may have this name: 1 to `NAME_LIMIT_BYTES` ASCII letters,
/// digits, `-` and `_`.
pub fn is_name(name: &str) -> bool {
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    plain && (1..=limits::NAME_LIMIT_BYTES).contains(&name.len())
}

fn name(value: &Value) -> Result<String, String> {
    let name = words("name", value)?;
    if !is_name(&name) {
        return Err(format!(
            "key 'name' is {value}; allowed: 1 to {} letters, digits, '-', '_'",
            limits::NAME_LIMIT_BYTES
        ));
    }
    Ok(name)
}

fn workloads(value: &Value) -> Result<Vec<Workload>, String> {
    let texts = texts("workload", value)?;
    each_once("workload", &texts)?;
    let of = |text: &String| {
        Workload::of(text)
            .ok_or_else(|| format!("key 'workload' has '{text}'; allowed: {}", workload_names()))
    };
    texts.iter().map(of).collect()
}

fn whole(key: &str, value: &Value, low: u64, high: u64) -> Result<u64, String> {
    let number = value.as_integer().and_then(|n| u64::try_from(n).ok());
    number.filter(|n| (low..=high).contains(n)).ok_or_else(|| {
        format!("key '{key}' is {value}; allowed: a whole number from {low} to {high}")
    })
}

fn yes_or_no(key: &str, value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("key '{key}' is {value}; allowed: true, false"))
}

fn seconds(key: &str, value: &Value) -> Result<f64, String> {
    let number = value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    number.ok_or_else(|| format!("key '{key}' is {value}, not a number of seconds"))
}

fn duration(what: &str, value: f64) -> Result<f64, String> {
    in_seconds(what, value, limits::DURATION_LEAST_S, limits::DURATION_LIMIT_S)
}

fn warmup(what: &str, value: f64) -> Result<f64, String> {
    in_seconds(what, value, 0.0, limits::DURATION_LIMIT_S)
}

/// `what` is the key of a file, or the option of a command line.
fn in_seconds(what: &str, value: f64, low: f64, high: f64) -> Result<f64, String> {
    if (low..=high).contains(&value) {
        return Ok(value);
    }
    Err(format!("{what} is {value}; allowed: {low} to {high} seconds"))
}

/// A level or a list of levels, as texts.
fn texts(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(on) => Ok(if *on { "on" } else { "off" }.to_owned()),
        other => Err(format!("key '{key}' has {other}; levels are texts or numbers")),
    };
    match value {
        Value::Array(list) if list.is_empty() => Err(format!("key '{key}' is an empty list")),
        Value::Array(list) => list.iter().map(one).collect(),
        single => Ok(vec![one(single)?]),
    }
}

fn each_once(key: &str, texts: &[String]) -> Result<(), String> {
    for (at, text) in texts.iter().enumerate() {
        if texts[..at].contains(text) {
            return Err(format!("'{key}' has '{text}' twice; give each level once"));
        }
    }
    Ok(())
}

fn stacks(key: &str, texts: &[String], allowed: &[&str]) -> Result<Vec<String>, String> {
    each_once(key, texts)?;
    match texts.iter().find(|text| !allowed.contains(&text.as_str())) {
        Some(text) => Err(format!("'{key}' has '{text}'; allowed: {}", allowed.join(", "))),
        None => Ok(texts.to_vec()),
    }
}

/// Checks the levels of a factor that at least one of the workloads must know.
fn levels(
    key: &str,
    name: &str,
    workloads: &[Workload],
    texts: &[String],
) -> Result<Vec<String>, String> {
    let known = |factor: &Factor| workloads.iter().any(|workload| factor.is_of(*workload));
    let Some(factor) = Factor::of(name).filter(|factor| known(factor)) else {
        let names: Vec<&str> = FACTORS.iter().filter(|f| known(f)).map(|f| f.name).collect();
        let what = workloads.iter().map(|w| w.name()).collect::<Vec<_>>().join(", ");
        return Err(format!(
            "'{key}': no factor '{name}' for {what}; allowed: stack, {}",
            names.join(", ")
        ));
    };
    let level = |text: &String| {
        factor
            .level(text)
            .ok_or_else(|| format!("'{key}' has '{text}'; allowed: {}", factor.levels))
    };
    let levels = texts.iter().map(level).collect::<Result<Vec<_>, _>>()?;
    each_once(key, &levels)?;
    Ok(levels)
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
