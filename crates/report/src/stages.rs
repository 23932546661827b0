//! The time of Millstream's engine by stage, one line for each case and stack.

use millstream_diagnose::stats::median;
use millstream_record::keys;

use super::model::{Model, Row};

/// Stages below this share are not worth a word.
const SHARE_LEAST: f64 = 0.005;

/// `tcp_stream direction=send, millstream (5 runs): transmit 60 %, write 28 %, …`; medians over
/// valid runs.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    model.lines_of(|row| in_words(shares(row)))
}

/// Returns the shares worth a word, the largest first: `near queue 92 %, far socket 8 %`.
pub(super) fn in_words(mut shares: Vec<(&str, f64)>) -> String {
    shares.retain(|(_, share)| *share >= SHARE_LEAST);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let words = shares
        .into_iter()
        .map(|(name, share)| format!("{} {:.0} %", name.replace('_', " "), share * 100.0));
    words.collect::<Vec<_>>().join(", ")
}

/// Stages and their median shares.
fn shares<'a>(row: &Row<'a>) -> Vec<(&'a str, f64)> {
    let mut stages: Vec<&str> = Vec::new();
    for key in row.group.valid.iter().flat_map(|run| run.results.keys()) {
        if let Some(stage) = key.strip_prefix(keys::STAGE_SHARE)
            && !stages.contains(&stage)
        {
            stages.push(stage);
        }
    }
    let of = |stage: &str| {
        let key = format!("{}{stage}", keys::STAGE_SHARE);
        // A stage that a run never came to had no share in it.
        let values: Vec<f64> =
            row.group.valid.iter().map(|run| run.result(&key).unwrap_or(0.0)).collect();
        median(&values).unwrap_or(0.0)
    };
    stages.into_iter().map(|stage| (stage, of(stage))).collect()
}
