//! An investigation in words: the answer, and the proof of each cause.

use std::fmt::Write as _;

use millstream_diagnose::causes::{Kind, Proof};
use millstream_diagnose::verdict::{EXPLAINED_LEAST, Verdict};

use super::{Investigation, Spent, Suspect};
use millstream_diagnose::units::Scale;
use millstream_record::keys;
use millstream_report::uses::{Answer, answer};

/// Rank below which a suspect that was not proved is not in the answer.
const SUSPECTED_LEAST: f64 = 0.2;

/// The proof of a cause that the budget tells.
const TIMED: &str = "by the budget of time";

/// A confirmed cause is the limit if it gains this part of what the budget's first row takes.
const NEARLY: f64 = 0.9;

impl Investigation {
    /// The answer in a few sentences: the causes, behind the budget.
    pub fn verdict(&self) -> String {
        let confirmed = |kind: Kind| {
            let mut all = self.suspects.iter();
            all.find(|one| one.verdict() == Verdict::Confirmed && one.cause.kind == kind)
        };
        let differ = confirmed(Kind::Separates).map(|suspect| {
            let judgement = suspect.judgement.as_ref();
            let times = match judgement.and_then(|one| one.explained.zip(one.forced)) {
                Some((share, forced)) if share >= EXPLAINED_LEAST => {
                    format!(", a factor of {:.2}", forced.ratio)
                }
                _ => String::new(),
            };
            format!("Runs differ by {} (confirmed{times}).", suspect.cause.title)
        });
        let answer = self.answer();
        let limit = confirmed(Kind::Limits).map(|suspect| {
            let forced = suspect.judgement.as_ref().and_then(|one| one.forced);
            let times = forced.map_or(String::new(), |one| {
                format!("; without it the result is {:.2} times as much", one.ratio)
            });
            let gained = suspect.gained().map_or(1.0, |gained| 1.0 - 1.0 / gained);
            let is_less = answer.as_ref().is_some_and(|one| gained < one.share * NEARLY);
            let which = if is_less { "One of the limits" } else { "The limit" };
            format!("{which} is {} (confirmed{times}).", suspect.cause.title)
        });
        let said: Vec<String> = differ.into_iter().chain(limit).collect();
        let said =
            if said.is_empty() { self.groups_text(answer.is_some()) } else { said.join(" ") };
        match self.left_out.len() {
            0 => said,
            lost => {
                let all = self.observed.len() + lost;
                format!("{said} {lost} of {all} runs did not count.")
            }
        }
    }

    /// Returns sentences on the groups, and on the causes that fit without proof; the time of the
    /// ends is told where `is_told`.
    fn groups_text(&self, is_told: bool) -> String {
        let limits = self.first_of(Kind::Limits, is_told);
        match self.modes.len() {
            0 | 1 => {
                let runs = 2 * self.observed.len();
                let change = (self.least_seen_text())
                    .map_or(String::new(), |change| format!("; {runs} runs would show {change}"));
                format!("Runs form one group{change}.{limits}")
            }
            groups => {
                let said = self.first_of(Kind::Separates, is_told);
                let said =
                    if said.is_empty() { " No cause of it is known." } else { said.as_str() };
                format!("Runs form {groups} groups.{said}{limits}")
            }
        }
    }

    fn answer(&self) -> Option<Answer> {
        let Spent { budget, clients, .. } = self.budget.as_ref()?;
        answer(budget, clients, self.work())
    }

    /// Returns the unit of work, and how many there are in a second, if the result tells of them.
    pub(super) fn work(&self) -> Option<(&'static str, f64)> {
        let key = self.result.as_str();
        let (unit, of) = match key {
            keys::TRANSACTIONS => ("transaction", 1.0),
            "requests_per_s" => ("request", 1.0),
            _ if key.ends_with("_packets_per_s") => ("packet", 1.0),
            _ if key.ends_with("_bits_per_s") => ("megabyte", 8e6),
            _ if key.ends_with("_bytes_per_s") => ("megabyte", 1e6),
            _ => return None,
        };
        Some((unit, self.median / of))
    }

    /// Returns the answer to “why not double?”: the bound that the budget sets, else that of the
    /// resources. None stands below what a confirmed cause gained.
    pub(super) fn bound(&self) -> String {
        let Some(answer) = self.answer() else { return self.limits.sentence() };
        let confirmed = self
            .suspects
            .iter()
            .filter(|one| one.verdict() == Verdict::Confirmed && one.cause.kind == Kind::Limits);
        let gained = confirmed.filter_map(Suspect::gained).fold(1.0, f64::max);
        let at_most = answer.at_most().max(gained);
        let (share, alone) = (answer.share * 100.0, answer.alone());
        let result = match at_most > alone * 1.02 {
            true => format!(
                "{alone:.2} times as much, and at most {at_most:.2} times as much where no thread waits for a CPU either"
            ),
            false => format!("at most {at_most:.2} times as much"),
        };
        format!("{share:.0} % of the time {}. Without that the result is {result}.", answer.first)
    }

    /// Returns the change that twice as many runs would show: a share, or a difference where there
    /// are no ratios.
    pub(super) fn least_seen_text(&self) -> Option<String> {
        let share = self.least_seen.map(|share| format!("a change of {:.1} %", 100.0 * share));
        share.or_else(|| {
            let by = self.scale().with_unit(self.least_difference?);
            Some(format!("a difference of {by} (not all are above 0, so that they have no ratio)"))
        })
    }

    /// A sentence that names the first suspect of this kind. None is named where that suspect takes
    /// hardly anything, or is refuted.
    fn first_of(&self, kind: Kind, is_told: bool) -> String {
        let of_kind = self.suspects.iter().find(|one| one.cause.kind == kind);
        let counts = |one: &&Suspect| {
            one.verdict() != Verdict::Refuted && one.rank.value() >= SUSPECTED_LEAST
        };
        let none = if is_told && kind == Kind::Limits { " No known cause fits." } else { "" };
        of_kind.filter(counts).map_or(none.to_owned(), |one| {
            let (title, verdict) = (&one.cause.title, spoken(one.verdict()));
            match kind {
                Kind::Limits if one.is_timed() => {
                    format!(" What limits them is {title} ({TIMED}).")
                }
                Kind::Separates => format!(" What goes with them first is {title} ({verdict})."),
                Kind::Limits if is_told => format!(" It may be {title} ({verdict})."),
                Kind::Limits => format!(" What limits them first is {title} ({verdict})."),
            }
        })
    }

    pub(super) fn scale(&self) -> Scale {
        let most = self.observed.iter().map(|point| point.result).map(f64::abs).fold(0.0, f64::max);
        Scale::of(&self.result, most)
    }
}

impl Suspect {
    /// Returns the factor that forcing it made.
    fn gained(&self) -> Option<f64> {
        let forced = self.judgement.as_ref()?.forced.as_ref()?;
        Some(forced.ratio.max(1.0 / forced.ratio))
    }

    /// Returns true where the budget tells it, and no forced run decided otherwise.
    pub(super) fn is_timed(&self) -> bool {
        self.cause.proof == Proof::Timed && self.judgement.is_none()
    }

    /// Returns the reason for its place among the causes that limit.
    pub(super) fn ranked(&self) -> Option<String> {
        let share_of = self.cause.share_of.as_ref()?;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let known = match self.rank.proof {
            Proof::Timed => TIMED,
            Proof::Counted => "counted by the kernel",
            Proof::Sampled => "as samples show",
            Proof::Circumstance => "whether it costs anything only forcing it tells",
        };
        let mut line = format!("It takes {} of {share_of} ({known}).", percent(self.rank.share));
        for (cause, share) in self.rank.follows_from.iter().filter(|(_, share)| *share > 0.005) {
            let _ = write!(line, " Of that {} may follow from {cause}.", percent(*share));
        }
        if let Some((cause, _)) = &self.rank.why_of {
            let _ = write!(line, " It stands before {cause}, of which it says why.");
        }
        Some(line)
    }

    /// Returns sentences on the results of forcing it.
    pub(super) fn proof(&self, scale: &Scale) -> Vec<String> {
        let mut lines = Vec::new();
        if let (Some(judgement), Some(factor)) = (&self.judgement, &self.forced_factor) {
            for (level, results) in &self.forced {
                let median = millstream_diagnose::stats::median(results)
                    .map_or("–".to_owned(), |m| scale.with_unit(m));
                lines.push(format!("{factor}={level}: {median}, {} runs", results.len()));
            }
            if !self.set_at.is_empty() {
                let ends = self.set_at.join(", ");
                lines.push(format!("It was set in the network namespace of {ends}."));
            }
            let forced = judgement.forced.as_ref();
            if let (Some(forced), Some(explained)) = (forced, judgement.explained) {
                let share = explained * 100.0;
                lines.push(format!(
                    "Forcing it makes a ratio of {:.2} ({:.2} to {:.2}), {share:.0} % of the observed difference of \
                     {:.2} (on a logarithmic scale).",
                    forced.ratio, forced.interval.0, forced.interval.1, judgement.observed_ratio
                ));
            } else if let Some(forced) = forced {
                let (from, to) = &judgement.levels;
                lines.push(format!(
                    "From {from} to {to} the result changes by a ratio of {:.2} ({:.2} to {:.2}).",
                    forced.ratio, forced.interval.0, forced.interval.1
                ));
            } else if let Some(found) = &judgement.difference {
                let [by, low, high] = [found.difference, found.interval.0, found.interval.1]
                    .map(|value| scale.with_unit(value));
                let share = judgement.explained.map_or(String::new(), |share| {
                    format!(", {:.0} % of the observed one", share * 100.0)
                });
                lines.push(format!(
                    "Forcing it makes a difference of {by} ({low} to {high}){share}."
                ));
            }
            if let Some(share) = judgement.calmed {
                let share = share * 100.0;
                lines.push(format!(
                    "Holding it takes away {share:.0} % of the observed difference between runs."
                ));
            }
            if !judgement.still_grouped.is_empty() {
                let levels = judgement.still_grouped.join(", ");
                lines.push(format!("Within {levels} the runs still fall into such groups."));
            }
            if let Some(runs) = judgement.runs_needed {
                lines.push(format!("{runs} runs of each level would tell."));
            }
        }
        if let Some(why) = &self.not_forced {
            lines.push(match self.judgement {
                Some(_) => format!("That decides nothing: {why}."),
                None => format!("It was not forced: {why}."),
            });
        }
        lines
    }
}

/// A verdict in plain words.
pub(super) fn spoken(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Confirmed => "confirmed",
        Verdict::AssociatedOnly => "associated only",
        Verdict::Refuted => "refuted",
        Verdict::CannotTell => "not decided",
    }
}

/// A number of a feature, whose unit is in its name.
pub(super) fn plain(value: f64) -> String {
    millstream_diagnose::units::significant(value)
}
