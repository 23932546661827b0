//! The surroundings of a run, as facts that can be compared one by one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Facts about the machine and the program, each under a dotted name whose end is the unit.
///
/// Names start with the subject: `kernel.`, `cpu.`, `memory.`, `sysctl.`, `cgroup.`, `process.`,
/// `millstream.`, `interface.HOST.NAME.`. Facts that could not be read are in `absent` with the
/// reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the fact and its value as text.
    #[serde(default)]
    pub facts: BTreeMap<String, String>,
    /// Name of a fact that could not be had, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub absent: BTreeMap<String, String>,
}

impl Environment {
    /// Returns the value of one fact.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    /// Sets a fact; an earlier value or absence of that name is gone.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.absent.remove(&name);
        self.facts.insert(name, value.into());
    }

    /// Sets a fact, or the reason why it is absent.
    pub fn record<E: std::fmt::Display>(&mut self, name: &str, value: Result<String, E>) {
        match value {
            Ok(value) => self.set(name, value),
            Err(reason) => {
                self.facts.remove(name);
                self.absent.insert(name.to_owned(), reason.to_string());
            }
        }
    }

    /// Returns the facts whose values differ, as (name, here, there); an unknown one is `None`.
    pub fn changes<'a>(
        &'a self,
        other: &'a Self,
    ) -> Vec<(&'a str, Option<&'a str>, Option<&'a str>)> {
        let mut names: Vec<&str> =
            self.facts.keys().chain(other.facts.keys()).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        let both = names.into_iter().map(|name| (name, self.get(name), other.get(name)));
        both.filter(|(_, here, there)| here != there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_what_differs_and_what_only_one_side_knows() {
        let (mut a, mut b) = (Environment::default(), Environment::default());
        a.set("kernel.release", "6.1");
        b.set("kernel.release", "6.2");
        a.set("cpu.model", "X");
        b.set("cpu.model", "X");
        a.set("memory.total_bytes", "1");
        let expected = vec![
            ("kernel.release", Some("6.1"), Some("6.2")),
            ("memory.total_bytes", Some("1"), None),
        ];
        assert_eq!(a.changes(&b), expected);
    }

    #[test]
    fn a_fact_is_either_known_or_absent() {
        let mut env = Environment::default();
        env.record("cpu.governor", Err("no such file"));
        assert_eq!(env.absent["cpu.governor"], "no such file");
        env.record::<&str>("cpu.governor", Ok("performance".into()));
        assert!(env.absent.is_empty());
        assert_eq!(env.get("cpu.governor"), Some("performance"));
    }
}
