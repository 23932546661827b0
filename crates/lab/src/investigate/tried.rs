//! Factors that the user has set, whatever the observed runs say of them.

use millstream_diagnose::causes::{Cause, Force, Kind, Proof};

use super::Suspect;
use super::subject::KEEP;
use millstream_record::error::Error;

/// Reads `FACTOR=LEVEL[,LEVEL…]`. The level at which things are as they are is the first, whether
/// or not it is named.
pub fn tried(text: &str) -> Result<Force, Error> {
    let refused = || Error::Refused(format!("--try {text}: it is FACTOR=LEVEL[,LEVEL…]"));
    let (factor, levels) = text.split_once('=').ok_or_else(refused)?;
    let free = if factor == "placement" { "free" } else { KEEP };
    let mut all = vec![free.to_owned()];
    all.extend(levels.split(',').map(str::trim).filter(|level| *level != free).map(str::to_owned));
    if factor.is_empty() || all.len() < 2 || all.iter().any(String::is_empty) {
        return Err(refused());
    }
    Ok(Force { factor: factor.to_owned(), levels: all, free: Some(free.to_owned()) })
}

/// Returns the suspect that stands for a forced factor among the causes. It looks at no feature,
/// and claims no share.
pub(super) fn suspect(force: &Force) -> Suspect {
    let cause = Cause {
        id: format!("tried-{}", force.factor),
        title: format!("what {} is set to", force.factor),
        kind: Kind::Limits,
        needs: vec![],
        when: "true".to_owned(),
        share: None,
        share_of: None,
        proof: Proof::Circumstance,
        explains: vec![],
        says_why: vec![],
        evidence: "You had it tried.".to_owned(),
        who: None,
        counter: None,
        force: vec![force.clone()],
        remedy: "Set it to the level that is best.".to_owned(),
        source: "--try".to_owned(),
    };
    Suspect {
        evidence: cause.evidence.clone(),
        cause,
        counter: None,
        rank: Default::default(),
        forced: vec![],
        forced_factor: None,
        judgement: None,
        not_forced: None,
        set_at: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_that_is_kept_is_the_first() {
        let levels = |text| tried(text).map(|force| force.levels.join(" "));
        assert_eq!(levels("mtu.eth0=9000,1500").unwrap(), "keep 9000 1500");
        assert_eq!(levels("sysctl.net.core.rmem_max=keep, 1").unwrap(), "keep 1");
        assert_eq!(levels("placement=same,free").unwrap(), "free same");
        for bad in ["mtu.eth0", "=1", "mtu.eth0=", "mtu.eth0=keep", "mtu.eth0=1,,2"] {
            let why = levels(bad).unwrap_err().to_string();
            assert!(why.contains("FACTOR=LEVEL"), "{bad}: {why}");
        }
    }
}
