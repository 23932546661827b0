//! What a workload says of itself, and the list of all.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Joined, Measure, Outcome, Part, Progress};
use super::{crr, forward, rr, soak, stream, udp_pps, udp_rr, udp_stream};
use crate::experiment::Factor;
use crate::transport::Network;

/// Every workload, in the order of lists: the line that registers one.
pub const ALL: &[Workload] = &[
    Workload(&stream::KIND),
    Workload(&rr::KIND),
    Workload(&crr::KIND),
    Workload(&udp_stream::KIND),
    Workload(&udp_rr::KIND),
    Workload(&udp_pps::KIND),
    Workload(&forward::KIND),
    Workload(&soak::KIND),
];

/// All that the laboratory knows of a kind of traffic.
pub struct Kind {
    /// The field's name: `tcp_stream`, `tcp_rr`, ...
    pub name: &'static str,
    /// The key of the result that is looked at first; more of it is better.
    pub result: &'static str,
    /// Factors that only this workload has.
    pub own_factors: &'static [Factor],
    /// Names of those that it shares with some others; the factors of all need not be named.
    pub factors: &'static [&'static str],
    /// Whether its queues and engines are looked at all the time: it may go on for hours.
    pub watched: bool,
    /// What joins the two ends, and what is counted.
    pub plan: fn(&Task) -> Plan,
    /// Works at one end until `Progress` says stop, then ends every connection in order.
    pub work: fn(&mut dyn Network, Part<'_>, &Progress) -> io::Result<Outcome>,
}

/// A workload by its kind.
#[derive(Clone, Copy)]
pub struct Workload(&'static Kind);

/// What a task comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What joins the two ends.
    pub joined: Joined,
    /// What it counts, from which its results follow.
    pub measure: Measure,
}

/// What is to be done: a workload with the levels of its factors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// What runs.
    pub workload: Workload,
    /// Levels of the factors that it knows; of one that is not there, the default.
    levels: BTreeMap<String, String>,
}

impl Workload {
    /// The workload of this name.
    pub fn of(name: &str) -> Option<Self> {
        ALL.iter().copied().find(|workload| workload.name() == name)
    }

    /// `tcp_stream`, `tcp_rr`, ...
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The key of the result that is looked at first; more of it is better.
    pub fn result(self) -> &'static str {
        self.0.result
    }

    /// Whether its queues and engines are looked at all the time.
    pub fn is_watched(self) -> bool {
        self.0.watched
    }

    /// Whether a router stands between its two hosts.
    pub fn is_routed(self) -> bool {
        matches!(Task::new(self, []).plan().joined, Joined::Flows(_))
    }

    /// Factors that only this workload has.
    pub(crate) fn own_factors(self) -> &'static [Factor] {
        self.0.own_factors
    }

    /// Whether it names the factor as one of its own or of some.
    pub(crate) fn names(self, factor: &str) -> bool {
        self.0.factors.contains(&factor) || self.0.own_factors.iter().any(|own| own.name == factor)
    }
}

impl Task {
    /// The workload with these levels; those of factors that it does not know are left out.
    pub fn new<'a>(
        workload: Workload,
        levels: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let known = levels
            .into_iter()
            .filter(|(name, _)| Factor::of(name).is_some_and(|factor| workload.names(factor.name)));
        let levels = known.map(|(name, level)| (name.to_owned(), level.to_owned())).collect();
        Self { workload, levels }
    }

    /// The level of a factor.
    pub fn level(&self, name: &str) -> &str {
        let default = || Factor::of(name).map_or("", |factor| factor.default);
        self.levels.get(name).map_or_else(default, String::as_str)
    }

    /// The level of a factor whose levels are numbers; 0 for a word.
    pub fn number(&self, name: &str) -> usize {
        self.level(name).parse().unwrap_or(0)
    }

    /// The same with another level of a factor, if the workload knows it.
    pub fn with(mut self, name: &str, level: &str) -> Self {
        if self.workload.names(name) {
            self.levels.insert(name.to_owned(), level.to_owned());
        }
        self
    }

    /// Connections or sockets on which the near and the far host send, `count` of each that does, by the factor `direction`.
    pub(super) fn each_way(&self, count: usize) -> (usize, usize) {
        match self.level("direction") {
            "recv" => (0, count),
            "send" => (count, 0),
            _ => (count, count),
        }
    }

    /// What it comes down to.
    pub fn plan(&self) -> Plan {
        (self.workload.0.plan)(self)
    }

    pub(super) fn work(
        network: &mut dyn Network,
        part: Part<'_>,
        progress: &Progress,
    ) -> io::Result<Outcome> {
        (part.task.workload.0.work)(network, part, progress)
    }

    /// Refuses levels that no definition may have: of a task that comes from elsewhere.
    pub fn check(&self) -> Result<(), String> {
        let name = self.workload.name();
        for (factor, level) in &self.levels {
            let known = Factor::of(factor).filter(|known| self.workload.names(known.name));
            let Some(known) = known else { return Err(format!("{name} has no factor {factor:?}")) };
            if known.level(level).as_deref() != Some(level) {
                return Err(format!("{factor} is {level:?}; allowed: {}", known.levels));
            }
        }
        Ok(())
    }
}

impl PartialEq for Workload {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Workload {}

impl PartialOrd for Workload {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// In the order of [`ALL`].
impl Ord for Workload {
    fn cmp(&self, other: &Self) -> Ordering {
        let place = |one: &Self| ALL.iter().position(|known| known == one);
        place(self).cmp(&place(other))
    }
}

impl Hash for Workload {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Workload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::of(&name).ok_or_else(|| D::Error::custom(format!("no workload {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_has_a_name_a_result_and_factors_that_are_there() {
        for (at, one) in ALL.iter().enumerate() {
            assert_eq!(Workload::of(one.name()), Some(*one));
            assert!(ALL[..at].iter().all(|other| other < one), "in the order of the list");
            assert!(!one.result().is_empty());
            for name in one.0.factors {
                let factor = Factor::of(name).unwrap_or_else(|| panic!("no factor {name}"));
                assert_eq!(
                    factor.scope,
                    crate::experiment::Scope::Named,
                    "{name} is of all: it need not be named"
                );
            }
            let task = Task::new(*one, []);
            assert_eq!(task.check(), Ok(()));
            task.plan();
        }
    }

    #[test]
    fn levels_that_no_definition_may_have_are_refused() {
        let rr = Workload::of("tcp_rr").unwrap();
        let task = |name: &str, level: &str| Task {
            workload: rr,
            levels: [(name.to_owned(), level.to_owned())].into(),
        };
        assert_eq!(task("request_bytes", "100").check(), Ok(()));
        for (name, level) in [
            ("request_bytes", "0"),
            ("request_bytes", "18446744073709551616"),
            ("request_bytes", "0100"),
            ("streams", "1"),
            ("no_such", "1"),
        ] {
            assert!(task(name, level).check().is_err(), "{name}={level}");
        }
        assert_eq!(Task::new(rr, [("streams", "9"), ("ip", "v6")]), Task::new(rr, []));
        let text = serde_json::to_string(&task("request_bytes", "7")).unwrap();
        assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task("request_bytes", "7"));
        assert!(serde_json::from_str::<Task>(&text.replace("tcp_rr", "exec")).is_err());
    }
}
