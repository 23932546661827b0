//! The catalogue of known causes.
//!
//! A cause is one TOML file: the features it needs, an expression that says when it fits, sentences
//! for its evidence, how it can be forced, what to do about it, and where that is from. Expressions
//! and sentences are those of `minijinja` over the values that [`Scene`] gives; `--causes DIR` adds
//! files of the same form to those built in.
//!
//! ```toml
//! id = "shared-cpu"
//! title = "whether both ends share a CPU"
//! kind = "separates"                       # or "limits"
//! needs = ["same_cpu_share"]
//! when = "same_cpu_share.shown and same_cpu_share.spread > 0.3"
//! evidence = "In the slow runs both ends shared a CPU for {{ (same_cpu_share.low * 100) | round }} % of the time."
//! remedy = "Pin both ends."
//! source = "Documentation/networking/scaling.rst"
//! [force]
//! factor = "placement"
//! levels = ["same", "split"]
//! ```
//!
//! The order of causes that fit is described in [`suspects`](mod@crate::suspects).

use std::collections::BTreeMap;
use std::fmt;

use minijinja::{Environment, State, UndefinedBehavior, Value};
use serde::{Deserialize, Serialize};

use crate::modes::Mode;
use crate::scaling::Scaling;
use crate::separate::{Feature, Separation};
use crate::stats::{median, quantile};

/// The files that are built in; a further cause is one file and one line here.
const BUILT_IN: &[(&str, &str)] = &[
    ("shared-cpu", include_str!("shared-cpu.toml")),
    ("ends-displace-each-other", include_str!("ends-displace-each-other.toml")),
    ("softirq-on-application-cpu", include_str!("softirq-on-application-cpu.toml")),
    ("distant-cpus", include_str!("distant-cpus.toml")),
    ("competing-process", include_str!("competing-process.toml")),
    ("cpu-taken-by-others", include_str!("cpu-taken-by-others.toml")),
    ("wake-up-of-another-cpu", include_str!("wake-up-of-another-cpu.toml")),
    ("migrations", include_str!("migrations.toml")),
    ("steal", include_str!("steal.toml")),
    ("full-cpu", include_str!("full-cpu.toml")),
    ("retransmissions", include_str!("retransmissions.toml")),
    ("receive-window", include_str!("receive-window.toml")),
    ("small-window", include_str!("small-window.toml")),
    ("send-buffer", include_str!("send-buffer.toml")),
    ("delayed-ack", include_str!("delayed-ack.toml")),
    ("backlog-drops", include_str!("backlog-drops.toml")),
    ("udp-receive-buffer", include_str!("udp-receive-buffer.toml")),
    ("listen-overflow", include_str!("listen-overflow.toml")),
    ("cpu-quota", include_str!("cpu-quota.toml")),
    ("packet-filter", include_str!("packet-filter.toml")),
    ("address-space", include_str!("address-space.toml")),
    ("lock-contention", include_str!("lock-contention.toml")),
    ("reordering", include_str!("reordering.toml")),
    ("segments-one-by-one", include_str!("segments-one-by-one.toml")),
    ("receive-steering", include_str!("receive-steering.toml")),
    ("ends-share-a-full-cpu", include_str!("ends-share-a-full-cpu.toml")),
    ("disk-writeback", include_str!("disk-writeback.toml")),
    ("receiver-does-not-read", include_str!("receiver-does-not-read.toml")),
    ("sender-does-not-write", include_str!("sender-does-not-write.toml")),
    ("round-trips", include_str!("round-trips.toml")),
    ("fragmentation", include_str!("fragmentation.toml")),
    ("interface-drops", include_str!("interface-drops.toml")),
    ("receiving-cpu-taken", include_str!("receiving-cpu-taken.toml")),
    ("small-segments", include_str!("small-segments.toml")),
    ("qdisc-rate", include_str!("qdisc-rate.toml")),
    ("queue-of-others", include_str!("queue-of-others.toml")),
    ("qdisc-drops", include_str!("qdisc-drops.toml")),
    ("conntrack-full", include_str!("conntrack-full.toml")),
    ("path-mtu", include_str!("path-mtu.toml")),
    ("fresh-mapping-for-each-read", include_str!("fresh-mapping-for-each-read.toml")),
    ("work-grows-with-the-queue", include_str!("work-grows-with-the-queue.toml")),
    ("limit-counts-payload", include_str!("limit-counts-payload.toml")),
    ("small-pieces-in-large-buffers", include_str!("small-pieces-in-large-buffers.toml")),
    ("allocation-for-each-packet", include_str!("allocation-for-each-packet.toml")),
    ("shared-lock", include_str!("shared-lock.toml")),
    ("path-rate", include_str!("path-rate.toml")),
    ("congestion-window", include_str!("congestion-window.toml")),
    ("pacing-limit", include_str!("pacing-limit.toml")),
    ("small-writes", include_str!("small-writes.toml")),
    ("tcp-memory", include_str!("tcp-memory.toml")),
    ("shared-between-threads", include_str!("shared-between-threads.toml")),
    ("collector", include_str!("collector.toml")),
    ("own-code", include_str!("own-code.toml")),
    ("own-disk", include_str!("own-disk.toml")),
    ("own-lock", include_str!("own-lock.toml")),
    ("own-timer", include_str!("own-timer.toml")),
    ("child-processes", include_str!("child-processes.toml")),
    ("name-look-ups", include_str!("name-look-ups.toml")),
    ("new-connections", include_str!("new-connections.toml")),
    ("system-calls", include_str!("system-calls.toml")),
    ("dropped-by-a-rule", include_str!("dropped-by-a-rule.toml")),
    ("neighbours-missing", include_str!("neighbours-missing.toml")),
    ("capture", include_str!("capture.toml")),
    ("classifiers", include_str!("classifiers.toml")),
    ("traced", include_str!("traced.toml")),
    ("system-call-filters", include_str!("system-call-filters.toml")),
    ("ports-used-up", include_str!("ports-used-up.toml")),
    ("softirq-budget", include_str!("softirq-budget.toml")),
    ("slow-start-after-idle", include_str!("slow-start-after-idle.toml")),
    ("one-cpu-receives", include_str!("one-cpu-receives.toml")),
    ("flows-on-one-queue", include_str!("flows-on-one-queue.toml")),
    ("uneven-workers", include_str!("uneven-workers.toml")),
    ("threads-share-a-cpu", include_str!("threads-share-a-cpu.toml")),
    ("process-between", include_str!("process-between.toml")),
];

/// The need of causes that judge runs of several numbers of threads.
pub const BY_THREADS: &str = "by_threads";

/// Share of a cause that limits and says none.
pub const SHARE_UNSAID: f64 = 0.5;

/// The question that a cause answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The question why runs differ from each other.
    Separates,
    /// The question why no run is faster.
    Limits,
}

/// Proof that a cause takes its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// The budget of time shows that a unit of work waits for it.
    Timed,
    /// The kernel counted the time or the packets that were lost to it.
    Counted,
    /// Samples of the CPUs show the time that went by in it; whether the result waits for that CPU
    /// they do not show.
    Sampled,
    /// It was there. Whether it costs anything only forcing it tells.
    #[default]
    Circumstance,
}

impl Proof {
    /// Returns the weight of a share with this proof, from 0 to 1.
    pub fn strength(self) -> f64 {
        match self {
            Self::Timed | Self::Counted => 1.0,
            Self::Sampled => 0.75,
            Self::Circumstance => 0.35,
        }
    }
}

/// A way to force a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Force {
    /// The factor of an experiment.
    pub factor: String,
    /// Its levels, two at least.
    pub levels: Vec<String>,
    /// The level that leaves things as they come, where there is one: the cause may work there or
    /// not. For a cause that limits it is the level that was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<String>,
}

/// One table or several of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(Force),
    Many(Vec<Force>),
}

fn forces<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Force>, D::Error> {
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(force) => vec![force],
        OneOrMany::Many(all) => all,
    })
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// Short name, unique.
    pub id: String,
    /// The cause in words, as the end of “the cause is …”.
    pub title: String,
    /// The question that it answers.
    pub kind: Kind,
    /// Features without which nothing is said of it.
    pub needs: Vec<String>,
    /// Expression of the condition under which it fits.
    pub when: String,
    /// Expression of the share that it takes of the time, of the work or of the packets, between 0
    /// and 1. Without it the share of a cause that separates is the strength of its features, and
    /// that of one that limits is [`SHARE_UNSAID`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// The whole of that share, as the end of “40 % of …”.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_of: Option<String>,
    /// Proof of the share.
    #[serde(default)]
    pub proof: Proof,
    /// Causes that this one makes by itself: their shares count by what this one leaves of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explains: Vec<String>,
    /// Causes that say where the time goes: this one says why, and goes before them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub says_why: Vec<String>,
    /// The sentence that speaks for it.
    pub evidence: String,
    /// A table of the run with the budget whose rows say who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The sentence that speaks against it, with its condition.
    #[serde(default)]
    pub counter: Option<Counter>,
    /// Ways to force it: the first that is open here is taken.
    #[serde(default, deserialize_with = "forces")]
    pub force: Vec<Force>,
    /// The remedy.
    pub remedy: String,
    /// The origin of the rule.
    pub source: String,
}

/// A sentence that speaks against a cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Expression of the condition under which it holds.
    pub when: String,
    /// The sentence.
    pub text: String,
}

/// A file of the catalogue that cannot be used, and why: one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCause(pub String);

impl fmt::Display for BadCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCause {}

impl Cause {
    /// Returns true if it reads this feature, be it one that it can do without.
    pub fn reads(&self, feature: &str) -> bool {
        let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let expressions = std::iter::once(&self.when).chain(&self.share);
        let mut names = expressions.flat_map(|text| text.split(|c| !is_of_a_name(c)));
        names.any(|name| name == feature) || self.needs.iter().any(|need| need == feature)
    }

    /// Reads one; `source` names the file in errors.
    pub fn parse(source: &str, text: &str) -> Result<Self, BadCause> {
        let refuse = |why: String| BadCause(format!("{source}: {why}"));
        let cause: Self =
            toml::from_str(text).map_err(|error| refuse(error.message().to_owned()))?;
        let environment = environment();
        let expressions =
            [Some(&cause.when), cause.share.as_ref(), cause.counter.as_ref().map(|one| &one.when)];
        for expression in expressions.into_iter().flatten() {
            environment
                .compile_expression(expression)
                .map_err(|error| refuse(format!("when = {expression:?}: {error}")))?;
        }
        let sentences = [Some(&cause.evidence), cause.counter.as_ref().map(|one| &one.text)];
        for sentence in sentences.into_iter().flatten() {
            environment
                .template_from_str(sentence)
                .map_err(|error| refuse(format!("{sentence:?}: {error}")))?;
        }
        for force in &cause.force {
            if force.levels.len() < 2 {
                return Err(refuse("force.levels has fewer than two levels".to_owned()));
            }
            if force.free.as_ref().is_some_and(|free| !force.levels.contains(free)) {
                return Err(refuse("force.free is none of force.levels".to_owned()));
            }
            if cause.kind == Kind::Limits && force.free.is_none() {
                return Err(refuse("force.free is missing: which level was observed?".to_owned()));
            }
        }
        Ok(cause)
    }
}

/// Returns the causes that are built in.
///
/// # Panics
///
/// When one of them cannot be read, which a test excludes.
pub fn built_in() -> Vec<Cause> {
    let read = |(name, text): &(&str, &str)| Cause::parse(name, text).expect("a built-in cause");
    BUILT_IN.iter().map(read).collect()
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_function("median", median_or);
    environment
}

/// Returns the value of `median("NAME", OTHERWISE)` in expressions, for a feature that a cause can
/// do without.
fn median_or(state: &State<'_, '_>, name: &str, otherwise: f64) -> f64 {
    let feature = state.lookup(name).and_then(|feature| feature.get_attr("median").ok());
    feature.and_then(|value| f64::try_from(value).ok()).unwrap_or(otherwise)
}

/// Values of a set of runs, for the expressions of causes. A feature has `median`, `least` and
/// `most` over the runs; `low` and `high`, its medians in the slowest and in the fastest group;
/// `spread`, the distance of those; `strength`; and `shown`, true where it goes with the groups.
/// Beside the features there are `groups`, their number, and `results.ratio` (highest to lowest
/// group). Where there are runs of several numbers of threads, [`BY_THREADS`] has the fields of
/// [`Scaling`].
#[derive(Debug)]
pub struct Scene {
    values: BTreeMap<String, Value>,
    measured: Vec<String>,
}

#[derive(Serialize)]
struct FeatureValue {
    median: f64,
    least: f64,
    most: f64,
    low: f64,
    high: f64,
    spread: f64,
    strength: f64,
    shown: bool,
}

impl Scene {
    /// Makes the scene of `features` over runs that fall into `modes`, the slowest first, with the
    /// findings of [`separate`](crate::separate::separate).
    pub fn new(features: &[Feature], modes: &[Mode], separation: &Separation) -> Self {
        let (mut values, mut measured) = (BTreeMap::new(), Vec::new());
        for feature in features {
            let of = |runs: &[usize]| {
                let those = runs.iter().filter_map(|&run| feature.values[run]);
                median(&those.collect::<Vec<_>>())
            };
            let all: Vec<f64> = feature.values.iter().copied().flatten().collect();
            // A feature that a minority of the runs measured says nothing of the others.
            let Some(middle) = median(&all).filter(|_| 2 * all.len() >= feature.values.len())
            else {
                continue;
            };
            let end = |mode: Option<&Mode>| mode.and_then(|mode| of(&mode.members));
            let low = end(modes.first()).unwrap_or(middle);
            let high = end(modes.last()).unwrap_or(middle);
            let finding = separation.findings.iter().find(|finding| {
                finding.feature == feature.name || finding.members.contains(&feature.name)
            });
            let value = FeatureValue {
                median: middle,
                least: quantile(&all, 0.0).unwrap_or(middle),
                most: quantile(&all, 1.0).unwrap_or(middle),
                low,
                high,
                spread: (high - low).abs(),
                strength: finding.map_or(0.0, |finding| finding.strength),
                shown: modes.len() > 1 && finding.is_some_and(|finding| finding.is_shown()),
            };
            measured.push(feature.name.clone());
            values.insert(feature.name.clone(), Value::from_serialize(&value));
        }
        let ratio = match (modes.first(), modes.last()) {
            (Some(a), Some(b)) if a.median.min(b.median) > 0.0 => {
                a.median.max(b.median) / a.median.min(b.median)
            }
            _ => 1.0,
        };
        values.insert("groups".into(), Value::from(modes.len()));
        values.insert("results".into(), Value::from_serialize(BTreeMap::from([("ratio", ratio)])));
        Self { values, measured }
    }

    /// Adds the values of runs of several numbers of threads.
    #[must_use]
    pub fn with_threads(mut self, scaling: &Scaling) -> Self {
        self.measured.push(BY_THREADS.to_owned());
        self.values.insert(BY_THREADS.to_owned(), Value::from_serialize(scaling));
        self
    }

    /// Returns the judgement of `cause`.
    pub fn look(&self, cause: &Cause) -> Look {
        let is_missing = |name: &&String| !self.measured.contains(name);
        let missing: Vec<String> = cause.needs.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty() {
            return Look::NotMeasured(missing);
        }
        match self.holds(&cause.when) {
            Ok(false) => Look::DoesNotFit,
            Ok(true) => {
                let counter = cause.counter.as_ref().and_then(|counter| {
                    self.holds(&counter.when).ok()?.then(|| self.say(&counter.text))
                });
                Look::Fits { evidence: self.say(&cause.evidence), counter }
            }
            Err(why) => Look::Broken(why),
        }
    }

    /// Returns the share that a cause that fits takes, from 0 to 1; where its file has no
    /// expression of it, `unsaid`, or else [`SHARE_UNSAID`].
    pub fn share(&self, cause: &Cause, unsaid: Option<f64>) -> f64 {
        let Some(expression) = &cause.share else { return unsaid.unwrap_or(SHARE_UNSAID) };
        let value = self.number(expression);
        let share = value.filter(|value| value.is_finite()).unwrap_or(0.0).clamp(0.0, 1.0);
        match cause.proof {
            Proof::Sampled => share * self.worked(),
            _ => share,
        }
    }

    /// Returns the part of the time in which CPUs worked for the ends, at most: samples tell shares
    /// of their work, however little it is.
    fn worked(&self) -> f64 {
        let most = "[ends_cpus.median, median('busiest_softirq_time_share', 0)] | max";
        let is_known = self.measured.iter().any(|name| name == "ends_cpus");
        match is_known.then(|| self.number(most)).flatten() {
            // Two ends in turns work for half of it each.
            Some(cpus) => (2.0 * cpus).clamp(0.0, 1.0),
            None => 1.0,
        }
    }

    fn number(&self, expression: &str) -> Option<f64> {
        let environment = environment();
        let value = environment.compile_expression(expression).ok()?.eval(&self.values).ok()?;
        f64::try_from(value).ok()
    }

    fn holds(&self, expression: &str) -> Result<bool, String> {
        let environment = environment();
        let compiled =
            environment.compile_expression(expression).map_err(|error| error.to_string())?;
        let value = compiled.eval(&self.values).map_err(|error| error.to_string())?;
        Ok(value.is_true())
    }

    fn say(&self, sentence: &str) -> String {
        let said = environment().render_str(sentence, &self.values);
        said.unwrap_or_else(|error| format!("{sentence} ({error})"))
    }
}

/// The judgement of a cause by a set of runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// These features were not measured, so nothing is said of it.
    NotMeasured(Vec<String>),
    /// Its condition does not hold.
    DoesNotFit,
    /// It holds.
    Fits {
        /// The sentence that speaks for it.
        evidence: String,
        /// The sentence that speaks against it.
        counter: Option<String>,
    },
    /// Its expression cannot be evaluated: the file is to be mended.
    Broken(String),
}

#[cfg(test)]
mod tests;
