//! A table that a probe saw: its columns say what they mean, so that whoever draws it knows nothing
//! of the probe.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Tables by name, which is the probe's.
pub type Tables = BTreeMap<String, Table>;

/// A table that a probe saw over all samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// The kind of thing that a row is of.
    pub key: Key,
    /// The meaning of each value of a row, in order.
    pub columns: Vec<Column>,
    /// Key and values of each row.
    pub rows: Vec<(String, Vec<f64>)>,
}

/// The kind of thing that the rows of a table are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// Something on the way of packets or connections, and who has it.
    Attached,
    /// An end of a connection: process, role and address, `→`, those of the other end.
    Connection,
    /// A CPU, by its number.
    Cpu,
    /// A disk or a partition, by its name.
    Disk,
    /// `HOST/INTERFACE`.
    Interface,
    /// The whole machine: one row.
    Machine,
    /// A process, `to`, and the port that it sends to.
    Opener,
    /// A queueing discipline: `HOST/INTERFACE`, kind and handle.
    Qdisc,
    /// A reason for which the kernel drops packets, in its own word.
    Reason,
    /// A resource that tasks wait for, by the same name on every machine.
    Resource,
}

impl Key {
    /// Returns the heading of the keys.
    pub fn heading(self) -> &'static str {
        match self {
            Self::Attached => "on the way",
            Self::Connection => "end → other end",
            Self::Cpu => "CPU",
            Self::Disk => "disk",
            Self::Interface => "interface",
            Self::Machine => "",
            Self::Opener => "process",
            Self::Qdisc => "queueing discipline",
            Self::Reason => "reason",
            Self::Resource => "resource",
        }
    }
}

/// The way in which the values of a column behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Grows with time and load: by how much it rose.
    Counter,
    /// A counter that rests where all is well: by how much it rose.
    Trouble,
    /// Does not grow with time.
    Level,
    /// A level from 0 to 1.
    Share,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name in the record, in features and on the page.
    pub name: Cow<'static, str>,
    /// Unit of its values: `packets`, `bytes`, `ms`.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub unit: Cow<'static, str>,
    /// The way in which they behave.
    pub kind: Kind,
    /// A column whose part this one is: of a counter all, of trouble what went well beside it; of a
    /// share the trouble without which it says nothing.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub part_of: Cow<'static, str>,
    /// A sentence on what it counts.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub help: Cow<'static, str>,
}

impl Column {
    /// Returns a column by itself.
    pub const fn new(
        name: &'static str,
        unit: &'static str,
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self::part(name, unit, kind, "", help)
    }

    /// Returns a column whose values are a part of those of another one.
    pub const fn part(
        name: &'static str,
        unit: &'static str,
        kind: Kind,
        part_of: &'static str,
        help: &'static str,
    ) -> Self {
        let [name, unit, part_of, help] =
            [Cow::Borrowed(name), Cow::Borrowed(unit), Cow::Borrowed(part_of), Cow::Borrowed(help)];
        Self { name, unit, kind, part_of, help }
    }

    /// Returns the seconds of one, where its unit is one of time.
    pub fn seconds(&self) -> Option<f64> {
        match &*self.unit {
            "s" => Some(1.0),
            "ms" => Some(1e-3),
            "us" => Some(1e-6),
            _ => None,
        }
    }

    /// Returns true where it grows with time.
    pub fn grows(&self) -> bool {
        matches!(self.kind, Kind::Counter | Kind::Trouble)
    }
}

impl Table {
    /// Returns key and value of each row in the column of this name; `None` without such a column.
    pub fn column(&self, name: &str) -> Option<impl Iterator<Item = (&str, f64)> + Clone> {
        let at = self.columns.iter().position(|column| column.name == name)?;
        let value = move |row: &'_ (String, Vec<f64>)| row.1.get(at).copied().unwrap_or(0.0);
        Some(self.rows.iter().map(move |row| (row.0.as_str(), value(row))))
    }

    /// Returns the value of a row in a column; 0 where such a column has no such row, as rows
    /// without a count are left out.
    pub fn value(&self, key: &str, column: &str) -> Option<f64> {
        let found = self.column(column)?.find(|(one, _)| *one == key);
        Some(found.map_or(0.0, |(_, value)| value))
    }

    /// Returns true where the rows do the same work together, so that their counts add up; of
    /// others the one with most counts.
    pub fn adds_up(&self) -> bool {
        !matches!(self.key, Key::Connection | Key::Disk | Key::Qdisc)
    }

    /// Returns the values of a column as one: the sum of counts that add up, else the most.
    pub fn all_of(&self, column: &Column) -> f64 {
        let values = self.column(&column.name).into_iter().flatten().map(|(_, value)| value);
        let mut trouble = self.column(&column.part_of);
        let is_known = |_: &f64| match &mut trouble {
            Some(trouble) if column.kind == Kind::Share => {
                trouble.next().is_some_and(|one| one.1 > 0.0)
            }
            _ => true,
        };
        match column.grows() && self.adds_up() {
            true => values.sum(),
            false => values.filter(is_known).fold(0.0, f64::max),
        }
    }

    /// Returns the share of a part in its whole, of rows that add up in all together, else the most
    /// that one has; trouble is no part of what went well. Without a whole there is no trouble, and
    /// of another part `None`.
    pub fn share_of(&self, column: &Column) -> Option<f64> {
        if column.kind == Kind::Share {
            return None;
        }
        let parts = self.column(&column.name)?.map(|(_, value)| value);
        let both = self.column(&column.part_of)?.map(|(_, value)| value).zip(parts);
        let beside = f64::from(u8::from(column.kind == Kind::Trouble));
        let share = |(whole, part): (f64, f64)| {
            let whole = whole + beside * part;
            (whole > 0.0).then(|| (part / whole).min(1.0))
        };
        let found = match self.adds_up() {
            true => share(both.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1))),
            false => both.filter_map(share).reduce(f64::max),
        };
        found.or((column.kind == Kind::Trouble).then_some(0.0))
    }
}

impl Table {
    /// Returns the columns that tell of trouble, without their help, and the rows that had any;
    /// `None` without such a column.
    pub(super) fn of_trouble(&self) -> Option<Self> {
        let is_trouble = |at: &usize| self.columns[*at].kind == Kind::Trouble;
        let places: Vec<usize> = (0..self.columns.len()).filter(is_trouble).collect();
        let column = |&at: &usize| Column { help: "".into(), ..self.columns[at].clone() };
        let row = |(key, values): &(String, Vec<f64>)| {
            let value = |at: &usize| values.get(*at).copied().unwrap_or(0.0);
            (key.clone(), places.iter().map(value).collect::<Vec<_>>())
        };
        let had_any = |(_, values): &(String, Vec<f64>)| values.iter().any(|value| *value != 0.0);
        let columns = places.iter().map(column).collect();
        let rows = self.rows.iter().map(row).filter(had_any).collect();
        (!places.is_empty()).then_some(Self { key: self.key, columns, rows })
    }
}

/// The probes of a record as it was before there were tables, in JSON: each had a form of its own.
pub(super) mod before {
    use serde_json::Value;

    use super::{Column, Key, Kind, Table};

    /// The kind of its rows, and each column under the name that it had.
    type Form = (Key, &'static [(&'static str, Column)]);

    const fn column(name: &'static str, unit: &'static str, kind: Kind) -> Column {
        Column::new(name, unit, kind, "")
    }

    static SOFTNET: [(&str, Column); 5] = [
        ("processed", column("processed", "packets", Kind::Counter)),
        ("dropped", Column::part("dropped", "packets", Kind::Trouble, "processed", "")),
        ("time_squeezed", column("squeezed", "", Kind::Trouble)),
        ("received_rps", Column::part("received_rps", "", Kind::Counter, "processed", "")),
        ("flow_limited", column("flow_limited", "packets", Kind::Trouble)),
    ];
    static PRESSURE: [(&str, Column); 2] = [
        ("some_us", column("some", "us", Kind::Counter)),
        ("full_us", column("full", "us", Kind::Counter)),
    ];
    static DISKS: [(&str, Column); 3] = [
        ("read_bytes", column("read_bytes", "bytes", Kind::Counter)),
        ("written_bytes", column("written_bytes", "bytes", Kind::Counter)),
        ("busy_ms", column("busy", "ms", Kind::Counter)),
    ];
    static QDISCS: [(&str, Column); 5] = [
        ("sent_packets", column("sent", "packets", Kind::Counter)),
        ("drops", Column::part("dropped", "packets", Kind::Trouble, "sent", "")),
        ("overlimits", column("overlimits", "", Kind::Trouble)),
        ("requeues", column("requeues", "packets", Kind::Trouble)),
        ("waiting_share", Column::part("waiting", "", Kind::Share, "overlimits", "")),
    ];

    /// Returns the table of the probe of this name.
    pub fn table(name: &str, value: &Value) -> Option<Table> {
        let (key, form): Form = match name {
            "softirqs" => return softirqs(value),
            "softnet" => (Key::Cpu, &SOFTNET),
            "pressure" => (Key::Resource, &PRESSURE),
            "disks" => (Key::Disk, &DISKS),
            "qdiscs" => (Key::Qdisc, &QDISCS),
            _ => return None,
        };
        let values = |row: &Value| -> Vec<f64> {
            form.iter().map(|(field, _)| row[field].as_f64().unwrap_or(0.0)).collect()
        };
        let rows = match value {
            Value::Array(rows) => {
                rows.iter().map(|row| (row["cpu"].to_string(), values(row))).collect()
            }
            Value::Object(rows) => {
                rows.iter().map(|(key, row)| (key.clone(), values(row))).collect()
            }
            _ => return None,
        };
        Some(Table { key, columns: form.iter().map(|(_, column)| column.clone()).collect(), rows })
    }

    /// Counts by kind, each with a number for each CPU.
    fn softirqs(value: &Value) -> Option<Table> {
        let kinds = value.as_object()?;
        let counts: Vec<&Vec<Value>> = kinds.values().filter_map(Value::as_array).collect();
        let cpus = counts.iter().map(|counts| counts.len()).max()?;
        let of = |cpu: usize| -> Vec<f64> {
            counts.iter().map(|all| all.get(cpu).and_then(Value::as_f64).unwrap_or(0.0)).collect()
        };
        let columns = kinds
            .keys()
            .map(|kind| Column { name: kind.clone().into(), ..column("", "", Kind::Counter) });
        let rows = (0..cpus).map(|cpu| (cpu.to_string(), of(cpu)));
        Some(Table { key: Key::Cpu, columns: columns.collect(), rows: rows.collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Probes;

    #[test]
    fn probes_of_a_record_before_tables_become_tables() {
        let probes: Probes = serde_json::from_str(
            r#"{"times_s": [0.0, 1.0],
            "softirqs": {"NET_RX": [30, 10], "TIMER": [1, 2]},
            "softnet": [{"cpu": 0, "processed": 7, "dropped": 2, "time_squeezed": 1, "received_rps": 3,
                         "flow_limited": 0}],
            "pressure": {"io": {"some_us": 500000, "full_us": 1}},
            "disks": {"vda": {"read_bytes": 1, "written_bytes": 4096, "busy_ms": 250}},
            "qdiscs": {"a/eth0 tbf 1:": {"sent_packets": 9, "drops": 3, "overlimits": 0, "requeues": 0,
                                         "waiting_share": 0.75}}}"#,
        )
        .unwrap();
        let value = |table: &str, key: &str, column: &str| probes.tables[table].value(key, column);
        assert_eq!(value("softirqs", "1", "NET_RX"), Some(10.0));
        assert_eq!(value("softirqs", "0", "TIMER"), Some(1.0));
        assert_eq!(value("softnet", "0", "squeezed"), Some(1.0));
        assert_eq!(value("pressure", "io", "some"), Some(500_000.0));
        assert_eq!(value("disks", "vda", "busy"), Some(250.0));
        assert_eq!(value("disks", "vdb", "busy"), Some(0.0), "was not busy");
        assert_eq!(value("disks", "vda", "seeks"), None);
        assert_eq!(value("qdiscs", "a/eth0 tbf 1:", "waiting"), Some(0.75));
        let again = serde_json::to_string(&probes).unwrap();
        assert!(!again.contains("busy_ms"), "is kept as tables from now on: {again}");
        assert_eq!(serde_json::from_str::<Probes>(&again).unwrap(), probes);
    }

    #[test]
    fn work_of_several_adds_up_and_of_disks_the_busiest_counts() {
        let column = Column::new("busy", "ms", Kind::Counter, "");
        let rows = vec![("a".to_owned(), vec![3.0]), ("b".to_owned(), vec![4.0])];
        let mut table = Table { key: Key::Disk, columns: vec![column.clone()], rows };
        assert_eq!(table.all_of(&column), 4.0);
        table.key = Key::Cpu;
        assert_eq!(table.all_of(&column), 7.0);
    }

    #[test]
    fn a_share_counts_by_row_where_rows_do_not_add_up_and_where_its_trouble_is() {
        let columns = vec![
            Column::new("sent", "", Kind::Counter, ""),
            Column::part("dropped", "", Kind::Trouble, "sent", ""),
            Column::part("waiting", "", Kind::Share, "dropped", ""),
        ];
        let row = |key: &str, values: [f64; 3]| (key.to_owned(), values.to_vec());
        let rows = vec![row("a", [3.0, 1.0, 0.5]), row("b", [96.0, 0.0, 0.75])];
        let mut table = Table { key: Key::Qdisc, columns, rows };
        let of = |table: &Table, at: usize| table.share_of(&table.columns[at]);
        assert_eq!((of(&table, 0), of(&table, 1), of(&table, 2)), (None, Some(0.25), None));
        assert_eq!(table.all_of(&table.columns[2]), 0.5, "nothing was dropped where more waited");
        table.key = Key::Interface;
        assert_eq!(of(&table, 1), Some(0.01));
        table.rows.clear();
        assert_eq!(of(&table, 1), Some(0.0), "nothing went by");
    }
}
