//! The idle states that a run allows the machine's CPUs: held for as long as it lasts, whatever
//! stack is measured.

use std::time::Duration;

use millstream_link::sys::{IdleLatency, IdleLatencyState};

use millstream_record::RunRecord;

/// The idle latency that the kernel reports where nobody has asked for a limit.
const NO_LIMIT: Duration = Duration::from_secs(2_000);

/// A level of `idle_latency_us`, held. The kernel takes the request back when this is dropped, or
/// the runner killed.
pub(super) struct IdleLimit {
    request: Option<IdleLatency>,
    /// The idle latency in force at the beginning.
    before: Result<Duration, String>,
}

impl IdleLimit {
    /// Asks for a level: `auto` for nothing, a number for that many microseconds.
    pub(super) fn hold(level: &str) -> Self {
        let limit = level.parse().ok().map(Duration::from_micros);
        Self::of(limit.map(IdleLatency::hold))
    }

    fn of(request: Option<IdleLatency>) -> Self {
        let before = match &request {
            Some(request) => request.state().in_force,
            None => IdleLatency::of_machine(),
        };
        Self { request, before }
    }

    /// Puts what was asked, what was had, and why not, into the record, and takes the request back.
    pub(super) fn record(self, record: &mut RunRecord) {
        let asked = self.request.as_ref().map(IdleLatency::state);
        let after = match &asked {
            Some(state) => state.in_force.clone(),
            None => IdleLatency::of_machine(),
        };
        write(record, asked.as_ref(), &self.before, &after);
    }
}

fn write(
    record: &mut RunRecord,
    asked: Option<&IdleLatencyState>,
    before: &Result<Duration, String>,
    after: &Result<Duration, String>,
) {
    let text = |limit: Duration| match limit >= NO_LIMIT {
        true => "none".to_owned(),
        false => limit.as_micros().to_string(),
    };
    let request = asked.map_or("nothing".to_owned(), |state| text(state.asked));
    record.environment.set("idle_latency.asked_us", &request);
    record.environment.record("idle_latency.in_force_us", before.clone().map(text));
    match (asked, before) {
        (Some(_), Err(reason)) => record.notes.push(format!(
            "CPUs that wake up within {request} µs were asked for and refused ({reason}): they slept as ever."
        )),
        (Some(IdleLatencyState { doubt: Some(doubt), .. }), _) => record.notes.push(format!(
            "CPUs that wake up within {request} µs were asked for, which may change nothing: {doubt}."
        )),
        (Some(state), Ok(limit)) if *limit < state.asked => record.notes.push(format!(
            "Another program asks for CPUs that wake up within {} µs, less than this run.",
            text(*limit)
        )),
        (None, Ok(limit)) if *limit < NO_LIMIT => record.notes.push(format!(
            "Another program asks for CPUs that wake up within {} µs; this run did not.",
            text(*limit)
        )),
        _ => {}
    }
    if let (Ok(then), Ok(now)) = (before, after)
        && then != now
    {
        record.notes.push(format!(
            "The wake-up time that CPUs are asked for changed during the run from {} to {} µs.",
            text(*then),
            text(*now)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZERO: Duration = Duration::ZERO;

    fn state(in_force: Result<Duration, String>) -> IdleLatencyState {
        IdleLatencyState { asked: ZERO, in_force, doubt: None }
    }

    /// Facts and notes of a run that asked for zero, or for nothing.
    fn written(asked: Option<IdleLatencyState>, before: Result<Duration, String>) -> RunRecord {
        let mut record = RunRecord::default();
        write(&mut record, asked.as_ref(), &before, &before);
        record
    }

    #[test]
    fn what_was_asked_and_had_is_recorded_without_a_remark() {
        let record = written(Some(state(Ok(ZERO))), Ok(ZERO));
        assert_eq!(record.environment.get("idle_latency.asked_us"), Some("0"));
        assert_eq!(record.environment.get("idle_latency.in_force_us"), Some("0"));
        assert!(record.notes.is_empty() && record.validity.valid);
        let record = written(None, Ok(NO_LIMIT));
        assert_eq!(record.environment.get("idle_latency.asked_us"), Some("nothing"));
        assert_eq!(record.environment.get("idle_latency.in_force_us"), Some("none"));
        assert!(record.notes.is_empty());
    }

    #[test]
    fn a_refusal_is_recorded_with_its_reason_and_ends_no_run() {
        let refused = Err("/dev/cpu_dma_latency: Permission denied".to_owned());
        let record = written(Some(state(refused.clone())), refused.clone());
        assert!(record.environment.absent["idle_latency.in_force_us"].contains("Permission"));
        assert!(record.notes[0].contains("Permission denied") && record.validity.valid);
        // A run that asks for nothing need not be allowed to look.
        assert!(written(None, refused).notes.is_empty());
    }

    #[test]
    fn requests_of_others_changes_and_doubts_are_noted() {
        assert!(written(None, Ok(ZERO)).notes[0].starts_with("Another program"));
        let doubtful = IdleLatencyState { doubt: Some("nobody heeds it"), ..state(Ok(ZERO)) };
        assert!(written(Some(doubtful), Ok(ZERO)).notes[0].contains("nobody heeds it"));
        let mut record = RunRecord::default();
        let after = Ok(Duration::from_micros(5));
        write(&mut record, Some(&state(Ok(ZERO))), &Ok(ZERO), &after);
        assert!(record.notes[0].contains("changed during the run from 0 to 5"));
    }

    /// On this machine, as lax as it can be; held until recorded.
    #[test]
    fn a_level_is_held_until_it_is_recorded() {
        let mut record = RunRecord::default();
        IdleLimit::hold("2000000000").record(&mut record);
        assert_eq!(record.environment.get("idle_latency.asked_us"), Some("none"));
        let mut record = RunRecord::default();
        let limit = IdleLimit::hold("auto");
        assert!(limit.request.is_none());
        limit.record(&mut record);
        assert_eq!(record.environment.get("idle_latency.asked_us"), Some("nothing"));
    }
}
