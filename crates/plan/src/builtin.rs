//! Experiments compiled in.

use super::definition::Definition;

const FIRST_LOOK: &str = include_str!("first-look.toml");
const JUDGE: &str = include_str!("judge.toml");
const JUDGE_QUICK: &str = include_str!("judge-quick.toml");
const BUFFER_SWEEP: &str = include_str!("buffer-sweep.toml");
const IDLE_LATENCY: &str = include_str!("idle-latency.toml");
const ERRATIC: &str = include_str!("erratic.toml");
const UDP_PATH: &str = include_str!("udp-path.toml");
const FORWARD: &str = include_str!("forward.toml");
const SOAK: &str = include_str!("soak.toml");

/// Name and definition text of every built-in experiment.
pub fn builtins() -> &'static [(&'static str, &'static str)] {
    &[
        ("first-look", FIRST_LOOK),
        ("buffer-sweep", BUFFER_SWEEP),
        ("idle-latency", IDLE_LATENCY),
        ("erratic", ERRATIC),
        ("udp-path", UDP_PATH),
        ("forward", FORWARD),
        ("soak", SOAK),
        ("judge", JUDGE),
        ("judge-quick", JUDGE_QUICK),
    ]
}

/// The built-in experiment of this name.
pub fn builtin(name: &str) -> Option<Definition> {
    let (_, text) = builtins().iter().find(|(known, _)| *known == name)?;
    Some(Definition::parse(name, text).expect("built-in experiments are tested to parse"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    #[test]
    fn every_builtin_parses_under_its_own_name() {
        for (name, _) in builtins() {
            assert_eq!(builtin(name).unwrap().name, *name);
        }
    }

    #[test]
    fn first_look_measures_for_less_than_four_minutes() {
        let definition = builtin("first-look").unwrap();
        let runs = plan(&definition, 1);
        assert_eq!(runs.len(), 90);
        // A run's set-up takes two thirds of a second.
        let run = definition.duration_s + definition.warmup_s + 0.7;
        let seconds = runs.len() as f64 * run;
        assert!(seconds < 200.0, "{seconds} s, leaving no room for runs done again");
    }
}
