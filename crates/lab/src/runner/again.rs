//! Doing a run again that shows something else than what was to be measured.

use crate::limits;
use millstream_record::RunRecord;
use millstream_record::error::Error;

/// The reason why a run is to be made again. It is always something that was seen beside its
/// results, never a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// The impaired path was late itself. A run that stays so does not count.
    PathLate(String),
    /// The host kept the two CPUs apart. A run that stays so is kept, with a note: it is what this
    /// machine does.
    CpusApart,
}

/// The remark on a run that is kept although its CPUs were apart. It has no numbers, so that the
/// report says it once for all such runs.
pub(super) const CPUS_APART: &str = "The host of this machine kept the two CPUs apart before, inside or after the \
                                     run (cpu_distance_ns).";

impl Again {
    fn done_again(&self, times: u32) -> String {
        match self {
            Again::PathLate(_) => format!("The path was late: done again, {times} times."),
            Again::CpusApart => "Done again, as the host had moved the two CPUs apart.".to_owned(),
        }
    }
}

/// Does a run until nothing speaks against it, at most as often as is allowed; and how often it did
/// it again.
pub(super) fn until_fit(
    mut attempt: impl FnMut() -> Result<(RunRecord, Option<Again>), Error>,
) -> Result<(RunRecord, u32), Error> {
    let (mut repeats, mut note) = (0, None);
    loop {
        let (mut record, again) = attempt()?;
        match again {
            Some(reason) if repeats < limits::RUN_REPEATS => {
                repeats += 1;
                note = Some(reason.done_again(repeats));
                continue;
            }
            Some(Again::PathLate(reason)) => record.validity.reject(reason),
            Some(Again::CpusApart) => record.notes.push(CPUS_APART.to_owned()),
            None => {}
        }
        record.notes.extend(note);
        return Ok((record, repeats));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run against which this speaks so many times: number of the attempt kept, repeats,
    /// validity, notes.
    fn done(times: u32, again: &Again) -> (String, u32, bool, Vec<String>) {
        let mut attempts = 0;
        let attempt = || {
            attempts += 1;
            let again = (attempts <= times).then(|| again.clone());
            Ok((RunRecord::new(attempts.to_string()), again))
        };
        let (record, repeats) = until_fit(attempt).unwrap();
        (record.id, repeats, record.validity.valid, record.notes)
    }

    #[test]
    fn a_run_with_a_late_path_is_done_again_and_then_refused() {
        let (late, most) = (Again::PathLate("late".to_owned()), limits::RUN_REPEATS);
        assert_eq!(done(0, &late), ("1".to_owned(), 0, true, Vec::new()));
        let (id, repeats, valid, notes) = done(2, &late);
        assert_eq!((id.as_str(), repeats, valid, notes.len()), ("3", 2, true, 1));
        let (id, repeats, valid, _) = done(u32::MAX, &late);
        assert_eq!((id, repeats, valid), ((most + 1).to_string(), most, false));
    }

    #[test]
    fn a_run_whose_cpus_stay_apart_is_done_again_and_then_counts_with_a_note() {
        let (_, repeats, valid, notes) = done(u32::MAX, &Again::CpusApart);
        assert_eq!((repeats, valid), (limits::RUN_REPEATS, true));
        assert_eq!(notes[0], CPUS_APART);
        assert!(notes[1].starts_with("Done again"), "{notes:?}");
    }
}
