//! What the two sides say to each other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::experiment::{Factor, Levels};
use crate::limits;
use crate::record::{Environment, Probes};
use crate::worker::Reply;
use crate::workload::Task;

/// From the runner to the far side. There is nothing else that it does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) enum Request {
    /// What CLOCK_MONOTONIC says there.
    Now,
    /// Start the far end of a run, and look at the host.
    Begin(FarJob),
    /// Listen. As [`crate::worker::Command::Listen`].
    Listen { address: IpAddr },
    /// Count over this stretch of the far side's CLOCK_MONOTONIC.
    Measure { begin_ns: u64, end_ns: u64 },
    /// End it, and tell what was seen.
    Finish,
}

/// What the far end of a run does, on the kernel's sockets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FarJob {
    pub(super) task: Task,
    pub(super) buffer_bytes: Option<usize>,
    pub(super) congestion: Option<String>,
    /// Longest life of the load in seconds, from the beginning to the end.
    pub(super) most_s: f64,
}

/// From the far side to the runner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// See [`Request::Now`].
    Now { at_ns: u64 },
    /// What the worker there says.
    Worker(Box<Reply>),
    /// All that was seen.
    Finished(Box<FarSide>),
    /// It does not do that.
    Refused { why: String },
}

/// What the far side saw of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FarSide {
    /// What its probes saw; their times begin at `origin_ns`.
    pub probes: Probes,
    /// CLOCK_MONOTONIC there.
    pub origin_ns: u64,
    /// Facts of that host.
    pub environment: Environment,
    /// What each interface carried meanwhile.
    pub interfaces: BTreeMap<String, InterfaceBytes>,
}

/// What an interface carried in a run, link headers included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceBytes {
    /// Received.
    pub rx_bytes: u64,
    /// Sent.
    pub tx_bytes: u64,
}

impl FarJob {
    /// Refuses what no runner asks for: numbers beyond the levels of the factors that they come from.
    pub(super) fn check(&self) -> Result<(), String> {
        let within = |what: &str, factor: &str, value: usize, least: u64| {
            let most = most(factor);
            match (least..=most).contains(&(value as u64)) {
                true => Ok(()),
                false => Err(format!("{what} is {value}; allowed: {least} to {most}")),
            }
        };
        let ways = |factor: &str, near: usize, far: usize| {
            within("near_sends", factor, near, 0)?;
            within("far_sends", factor, far, 0)?;
            within("senders", factor, near.max(far), 1)
        };
        match self.task {
            Task::Stream { near_sends, far_sends, message_bytes, .. } => {
                ways("streams", near_sends, far_sends)?;
                within("message_bytes", "message_bytes", message_bytes, 1)?;
            }
            Task::Soak { near_sends, far_sends, message_bytes, .. } => {
                ways("soak_streams", near_sends, far_sends)?;
                within("message_bytes", "message_bytes", message_bytes, 1)?;
            }
            Task::RequestResponse { request_bytes, response_bytes }
            | Task::ConnectRequestResponse { request_bytes, response_bytes }
            | Task::DatagramRequestResponse { request_bytes, response_bytes } => {
                within("request_bytes", "request_bytes", request_bytes, 1)?;
                within("response_bytes", "response_bytes", response_bytes, 1)?;
            }
            Task::Datagrams { near_sends, far_sends, datagram_bytes, .. } => {
                ways("threads", near_sends, far_sends)?;
                within("datagram_bytes", "datagram_bytes", datagram_bytes, 1)?;
            }
        }
        if let Some(bytes) = self.buffer_bytes {
            within("buffer_bytes", "socket_buffer_bytes", bytes, 4096)?;
        }
        if let Some(name) = &self.congestion {
            let known = Factor::of("congestion").is_some_and(|one| one.level(name).is_some());
            if !known {
                return Err(format!("congestion {name:?} is none that is known"));
            }
        }
        let most_s = longest_s(limits::DURATION_LIMIT_S, limits::DURATION_LIMIT_S);
        if !(0.0..=most_s).contains(&self.most_s) {
            return Err(format!("most_s is {}; allowed: 0 to {most_s}", self.most_s));
        }
        Ok(())
    }
}

/// How long the load of a run may live: everything that a step may wait for, and its window.
pub(super) fn longest_s(warmup_s: f64, duration_s: f64) -> f64 {
    let steps_ms = 4 * limits::STEP_TIMEOUT_MS + limits::FINISH_LIMIT_MS;
    warmup_s + duration_s + steps_ms as f64 / 1e3
}

/// The largest number among the levels of a factor.
fn most(factor: &str) -> u64 {
    match Factor::of(factor).map(|factor| factor.levels) {
        Some(Levels::Number(_, most) | Levels::WordsOrNumber(_, _, most)) => most,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(task: Task) -> FarJob {
        FarJob { task, buffer_bytes: None, congestion: None, most_s: 60.0 }
    }

    fn stream(near_sends: usize, far_sends: usize, message_bytes: usize) -> FarJob {
        job(Task::Stream { near_sends, far_sends, message_bytes, zero_copy: false })
    }

    #[test]
    fn numbers_that_no_level_allows_are_refused() {
        assert_eq!(stream(1, 0, 131_072).check(), Ok(()));
        assert_eq!(
            job(Task::RequestResponse { request_bytes: 1, response_bytes: 1 }).check(),
            Ok(())
        );
        let rr = |request_bytes, response_bytes| {
            job(Task::DatagramRequestResponse { request_bytes, response_bytes })
        };
        let good = stream(1, 1, 1);
        for wrong in [
            stream(0, 0, 1),
            stream(1025, 0, 1),
            stream(0, usize::MAX, 1),
            stream(1, 0, 0),
            stream(1, 0, (16 << 20) + 1),
            rr(0, 1),
            rr(1, usize::MAX),
            FarJob { buffer_bytes: Some(usize::MAX), ..good.clone() },
            FarJob { congestion: Some("../../x".to_owned()), ..good.clone() },
            FarJob { most_s: f64::INFINITY, ..good.clone() },
            FarJob { most_s: f64::NAN, ..good.clone() },
            FarJob { most_s: -1.0, ..good },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_no_request() {
        let read = |text: &str| serde_json::from_str::<Request>(text);
        assert!(read(r#""Now""#).is_ok() && read(r#"{"Listen":{"address":"10.0.0.1"}}"#).is_ok());
        for wrong in [
            r#""Exec""#,
            r#"{"Run":{"command":"sh"}}"#,
            r#"{"Listen":{"address":"10.0.0.1","backlog":9}}"#,
            r#"{"Listen":{"address":"host.example"}}"#,
            r#"{"Begin":{"task":{"Stream":{}},"most_s":1}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let whole = serde_json::to_string(&Request::Begin(stream(1, 0, 1))).unwrap();
        assert!(read(&whole).is_ok());
        assert!(read(&whole.replace("\"most_s\"", "\"namespace\":\"/x\",\"most_s\"")).is_err());
    }
}
