//! An interval as JSON. What is not measured has no key, and `absent` says why.

use serde_json::{Map, Value, json};

use super::Moment;
use crate::table::{Column, Row};

/// A CPU of the table, with the columns that are measured.
pub fn cpu_json(row: &Row) -> Value {
    let mut columns = Map::new();
    columns.insert("cpu".to_owned(), json!(row.cpu));
    for column in Column::ALL {
        if let Some(value) = row.get(column) {
            columns.insert(column.name().to_owned(), json!(value));
        }
    }
    Value::Object(columns)
}

/// All of an interval.
pub fn moment_json(moment: &Moment) -> Value {
    let mut all = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            all.insert(key.to_owned(), value);
        }
    };
    put("at_s", json!(moment.at_s));
    put("width_s", json!(moment.width_s));
    put("look_s", json!(moment.look_s));
    put("load", json!(moment.load));
    put("cpus", moment.cpus.iter().map(cpu_json).collect());
    let has = |source: &str| !moment.absent.contains_key(source);
    if has("interfaces") {
        put("interfaces", json!(moment.interfaces));
    }
    if has("interrupts") {
        put("interrupts", json!(moment.interrupts));
    }
    put("pressure", json!(moment.pressure));
    put("sockets", json!(moment.sockets));
    put("engines", json!(moment.engines));
    put("absent", json!(moment.absent));
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_has_no_key() {
        let mut moment = Moment::default();
        moment.absent.insert("interrupts".to_owned(), "not measured, because no file".to_owned());
        let json = moment_json(&moment);
        for missing in ["interrupts", "pressure", "sockets", "load"] {
            assert!(json.get(missing).is_none(), "{missing}");
        }
        assert!(json["interfaces"].is_object());
        assert_eq!(json["absent"]["interrupts"], "not measured, because no file");
    }
}
