//! What a run is asked to do: a workload with the levels of its factors, and what that comes down to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::factor::Factor;
use super::workload::Workload;

/// Payload of a datagram of [`Workload::UdpPps`].
pub const SMALLEST_BYTES: usize = 1;

/// What joins the two ends of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Connections for the whole run: so many on which the near host sends, and so many on which the far host does.
    Connections {
        /// On which the near host sends.
        near_sends: usize,
        /// On which the far host sends.
        far_sends: usize,
        /// Small writes are sent at once (no Nagle).
        nodelay: bool,
    },
    /// A connection for each transaction, which the near host opens.
    Calls,
    /// So many sockets for datagrams at each end, of which some may be lost.
    Sockets(usize),
    /// So many sockets for datagrams of the near end, all to one of the far end, by way of a router.
    Flows(usize),
}

/// What a task counts, from which its results follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Payload that arrived.
    Bulk {
        /// How many connections or sockets the near host sends on.
        near_sends: usize,
        /// The same of the far host.
        far_sends: usize,
        /// Payload of each packet, where the packets are the workload's own.
        datagram_bytes: Option<usize>,
    },
    /// Pairs of request and response.
    Transactions,
}

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

impl Plan {
    /// Bulk data on as many connections each way as the factor `count` and `direction` say.
    fn of_streams(task: &Task, count: &str) -> Self {
        let (near_sends, far_sends) = task.each_way(task.number(count));
        Self {
            joined: Joined::Connections { near_sends, far_sends, nodelay: false },
            measure: Measure::Bulk { near_sends, far_sends, datagram_bytes: None },
        }
    }

    /// Whether it is of datagrams, of which some may be lost.
    pub fn is_of_datagrams(self) -> bool {
        matches!(self.joined, Joined::Sockets(_) | Joined::Flows(_))
    }

    /// Connections of bulk data on which the near and the far host send.
    pub fn streams(self) -> Option<(usize, usize)> {
        match (self.joined, self.measure) {
            (Joined::Connections { .. }, Measure::Bulk { near_sends, far_sends, .. }) => {
                Some((near_sends, far_sends))
            }
            _ => None,
        }
    }

    /// Sockets for datagrams that the far end binds.
    pub fn far_sockets(self) -> Option<usize> {
        match self.joined {
            Joined::Sockets(count) => Some(count),
            Joined::Flows(_) => Some(2),
            _ => None,
        }
    }

    /// Connections for the whole run.
    pub fn lanes(self) -> (usize, usize) {
        match self.joined {
            Joined::Connections { near_sends, far_sends, .. } => (near_sends, far_sends),
            _ => (0, 0),
        }
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
    fn each_way(&self, count: usize) -> (usize, usize) {
        match self.level("direction") {
            "recv" => (0, count),
            "send" => (count, 0),
            _ => (count, count),
        }
    }

    /// What it comes down to.
    pub fn plan(&self) -> Plan {
        match self.workload {
            Workload::TcpStream => Plan::of_streams(self, "streams"),
            Workload::TcpRr => Plan {
                joined: Joined::Connections { near_sends: 1, far_sends: 0, nodelay: true },
                measure: Measure::Transactions,
            },
            Workload::TcpCrr => Plan { joined: Joined::Calls, measure: Measure::Transactions },
            Workload::UdpStream => {
                let (near_sends, far_sends) = self.each_way(1);
                let datagram_bytes = Some(self.number("datagram_bytes"));
                Plan {
                    joined: Joined::Sockets(1),
                    measure: Measure::Bulk { near_sends, far_sends, datagram_bytes },
                }
            }
            Workload::UdpRr => Plan { joined: Joined::Sockets(1), measure: Measure::Transactions },
            Workload::UdpPps => {
                let threads = self.number("threads");
                let (near_sends, far_sends) = self.each_way(threads);
                let datagram_bytes = Some(SMALLEST_BYTES);
                Plan {
                    joined: Joined::Sockets(threads),
                    measure: Measure::Bulk { near_sends, far_sends, datagram_bytes },
                }
            }
            Workload::Forward => {
                let flows = self.number("flows");
                let datagram_bytes = Some(self.number("payload_bytes"));
                Plan {
                    joined: Joined::Flows(flows),
                    measure: Measure::Bulk { near_sends: flows, far_sends: 0, datagram_bytes },
                }
            }
            Workload::Soak => Plan::of_streams(self, "soak_streams"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ALL;

    #[test]
    fn every_workload_has_a_name_a_result_and_factors_that_are_there() {
        for (at, one) in ALL.iter().enumerate() {
            assert_eq!(Workload::of(one.name()), Some(*one));
            assert!(ALL[..at].iter().all(|other| other < one), "in the order of the list");
            assert!(!one.result().is_empty());
            for name in one.shared_factors() {
                let factor = Factor::of(name).unwrap_or_else(|| panic!("no factor {name}"));
                assert_eq!(
                    factor.scope,
                    crate::Scope::Named,
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
