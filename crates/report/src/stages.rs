//! The time of Millstream's engine by stage, one line for each case and stack.

use millstream_diagnose::stats::median;
use millstream_record::keys;

use super::model::{Model, Row};

/// Stages below this share are not worth a word.
pub(super) const SHARE_LEAST: f64 = 0.005;

/// `tcp_stream direction=send, millstream (5 runs): transmit 60 %, write 28 %, …`; medians over
/// valid runs.
pub(super) fn lines(model: &Model<'_>) -> Vec<String> {
    let rows = model.cases.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row)));
    let line = |(case, row): (&super::model::Case<'_>, &Row<'_>)| {
        let shares = shares(row);
        let words: Vec<String> =
            shares.iter().map(|(stage, share)| format!("{stage} {:.0} %", share * 100.0)).collect();
        let of = match row.group.valid.len() {
            1 => "1 run".to_owned(),
            n => format!("{n} runs"),
        };
        let words = words.join(", ");
        (!words.is_empty()).then(|| format!("{}, {} ({of}): {words}", case.label, row.label))
    };
    rows.filter_map(line).collect()
}

/// Stages and their median shares, the largest first.
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
    let mut shares: Vec<(&str, f64)> = stages.into_iter().map(|stage| (stage, of(stage))).collect();
    shares.retain(|(_, share)| *share >= SHARE_LEAST);
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    shares
}
