//! An investigation in words: the answer, and the proof of each cause.

use std::fmt::Write as _;

use millstream_diagnose::causes::{Kind, Proof};
use millstream_diagnose::verdict::{EXPLAINED_LEAST, Verdict};

use super::{Investigation, Suspect};
use millstream_diagnose::units::Scale;

/// Rank below which a suspect that was not proved is not in the answer.
const SUSPECTED_LEAST: f64 = 0.2;

impl Investigation {
    /// The answer in one sentence or two.
    pub fn verdict(&self) -> String {
        let confirmed = |kind: Kind| {
            self.suspects
                .iter()
                .filter(move |one| one.verdict() == Verdict::Confirmed && one.cause.kind == kind)
        };
        let ratio = |suspect: &Suspect| suspect.judgement.as_ref().and_then(|one| one.forced);
        let differ = confirmed(Kind::Separates).next().map(|suspect| {
            let judgement = suspect.judgement.as_ref();
            let times = match judgement.and_then(|one| one.explained.zip(one.forced)) {
                Some((share, forced)) if share >= EXPLAINED_LEAST => {
                    format!(", a factor of {:.2}", forced.ratio)
                }
                _ => String::new(),
            };
            format!("Runs differ by {} (confirmed{times}).", suspect.cause.title)
        });
        let limit = confirmed(Kind::Limits).next().map(|suspect| {
            let times = ratio(suspect).map_or(String::new(), |one| {
                format!("; without it the result is {:.2} times as much", one.ratio)
            });
            format!("The limit is {} (confirmed{times}).", suspect.cause.title)
        });
        let said: Vec<String> = differ.into_iter().chain(limit).collect();
        match self.modes.len() {
            _ if !said.is_empty() => said.join(" "),
            0 | 1 => {
                let runs = 2 * self.observed.len();
                let change = (self.least_seen_text())
                    .map_or(String::new(), |change| format!("; {runs} runs would show {change}"));
                format!("Runs form one group{change}.{}", self.first_of(Kind::Limits))
            }
            groups => {
                let said = self.first_of(Kind::Separates);
                let said =
                    if said.is_empty() { " No cause of it is known." } else { said.as_str() };
                format!("Runs form {groups} groups.{said}{}", self.first_of(Kind::Limits))
            }
        }
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

    /// A sentence that names the first suspect of this kind. Empty where that suspect takes hardly
    /// anything, or is refuted.
    fn first_of(&self, kind: Kind) -> String {
        let of_kind = self.suspects.iter().find(|one| one.cause.kind == kind);
        let counts = |one: &&Suspect| {
            one.verdict() != Verdict::Refuted && one.rank.value() >= SUSPECTED_LEAST
        };
        of_kind.filter(counts).map_or(String::new(), |one| {
            let (title, verdict) = (&one.cause.title, spoken(one.verdict()));
            match kind {
                Kind::Separates => format!(" What goes with them first is {title} ({verdict})."),
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
    /// Returns the reason for its place among the causes that limit.
    pub(super) fn ranked(&self) -> Option<String> {
        let share_of = self.cause.share_of.as_ref()?;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let known = match self.rank.proof {
            Proof::Counted => "counted by the kernel",
            Proof::Sampled => "as samples show",
            Proof::Circumstance => "whether it costs anything only forcing it tells",
        };
        let mut line = format!("It takes {} of {share_of} ({known}).", percent(self.rank.share));
        for (cause, share) in self.rank.follows_from.iter().filter(|(_, share)| *share > 0.005) {
            let _ = write!(line, " Of that {} may follow from {cause}.", percent(*share));
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
