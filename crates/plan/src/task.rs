//! The task of a run: a workload with the levels of its factors, and the plan of connections or
//! sockets that follows from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::factor::Factor;
use super::workload::Workload;

/// Payload of a datagram of [`Workload::UdpPps`].
pub const SMALLEST_BYTES: usize = 1;

/// The connections or sockets that join the two ends of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// Connections that last for the whole run.
    Connections {
        /// Connections on which the near host sends.
        near_sends: usize,
        /// Connections on which the far host sends.
        far_sends: usize,
        /// True when small writes are sent at once (no Nagle).
        nodelay: bool,
    },
    /// A new connection for each transaction, opened by the near host.
    Calls,
    /// So many sockets for datagrams at each end. Datagrams may be lost.
    Sockets(usize),
    /// So many sockets for datagrams at the near end, all of which send to one port of the far host
    /// through a router.
    Flows(usize),
}

/// The unit that a task counts. Its results are computed from these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Payload that arrived.
    Bulk {
        /// Connections or sockets on which the near host sends.
        near_sends: usize,
        /// Connections or sockets on which the far host sends.
        far_sends: usize,
        /// Payload bytes of each packet, where each packet is one datagram of the workload.
        datagram_bytes: Option<usize>,
    },
    /// Pairs of request and response.
    Transactions,
}

/// The connections or sockets of a task, and the unit that it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The connections or sockets that join the two ends.
    pub joined: Joined,
    /// The unit that it counts. The results are computed from these counts.
    pub measure: Measure,
}

/// A workload with the levels of its factors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The workload.
    pub workload: Workload,
    /// Levels of factors that the workload knows. A factor that is missing has its default.
    levels: BTreeMap<String, String>,
}

impl Plan {
    /// Returns the plan of bulk data: the factor `count` gives the connections each way, the factor
    /// `direction` the ways.
    fn of_streams(task: &Task, count: &str) -> Self {
        let (near_sends, far_sends) = task.each_way(task.number(count));
        Self {
            joined: Joined::Connections { near_sends, far_sends, nodelay: false },
            measure: Measure::Bulk { near_sends, far_sends, datagram_bytes: None },
        }
    }

    /// Returns true when the ends exchange datagrams, which may be lost.
    pub fn is_of_datagrams(self) -> bool {
        matches!(self.joined, Joined::Sockets(_) | Joined::Flows(_))
    }

    /// Returns the connections of bulk data on which the near and the far host send; `None` for
    /// anything else.
    pub fn streams(self) -> Option<(usize, usize)> {
        match (self.joined, self.measure) {
            (Joined::Connections { .. }, Measure::Bulk { near_sends, far_sends, .. }) => {
                Some((near_sends, far_sends))
            }
            _ => None,
        }
    }

    /// Returns the number of sockets for datagrams that the far end binds; `None` for TCP.
    pub fn far_sockets(self) -> Option<usize> {
        match self.joined {
            Joined::Sockets(count) => Some(count),
            Joined::Flows(_) => Some(2),
            _ => None,
        }
    }

    /// Returns the connections that last for the whole run: those on which the near host sends, and
    /// those of the far host.
    pub fn lanes(self) -> (usize, usize) {
        match self.joined {
            Joined::Connections { near_sends, far_sends, .. } => (near_sends, far_sends),
            _ => (0, 0),
        }
    }
}

impl Task {
    /// Returns a task with these levels. Levels of factors that the workload does not know are left
    /// out.
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

    /// Returns the level of a factor.
    pub fn level(&self, name: &str) -> &str {
        let default = || Factor::of(name).map_or("", |factor| factor.default);
        self.levels.get(name).map_or_else(default, String::as_str)
    }

    /// Returns the level of a factor whose levels are numbers; 0 for a word.
    pub fn number(&self, name: &str) -> usize {
        self.level(name).parse().unwrap_or(0)
    }

    /// Returns the task with another level of a factor, if the workload knows the factor.
    pub fn with(mut self, name: &str, level: &str) -> Self {
        if self.workload.names(name) {
            self.levels.insert(name.to_owned(), level.to_owned());
        }
        self
    }

    /// Returns the connections or sockets on which the near and the far host send: `count` for each
    /// host that sends, by the factor `direction`.
    fn each_way(&self, count: usize) -> (usize, usize) {
        match self.level("direction") {
            "recv" => (0, count),
            "send" => (count, 0),
            _ => (count, count),
        }
    }

    /// Returns the connections or sockets of the task, and the unit that it counts.
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

    /// Refuses levels that no definition may have, as a task can come from another program.
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
