//! The tables of an interval, and the lines above them.

use super::{
    Cell, EngineRates, EngineSocket, Head, InterfaceRates, Moment, PressureShares, Sheet,
    SocketRates, SourceRates,
};
use crate::table::{Column, Row, of_all};

/// The subject of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Activity of each CPU.
    Cpus,
    /// Interfaces.
    Interfaces,
    /// Interrupts by source.
    Interrupts,
    /// Sockets and their queues.
    Sockets,
    /// Millstream's engines.
    Engines,
    /// Their sockets and queues.
    EngineSockets,
}

impl Subject {
    /// All, from top to bottom.
    pub const ALL: [Self; 6] = [
        Self::Cpus,
        Self::Interfaces,
        Self::Interrupts,
        Self::Sockets,
        Self::Engines,
        Self::EngineSockets,
    ];

    /// Head of the table.
    pub fn title(self) -> &'static str {
        match self {
            Self::Cpus => "CPUs",
            Self::Interfaces => "interfaces",
            Self::Interrupts => "interrupts",
            Self::Sockets => "sockets",
            Self::Engines => "engines of Millstream",
            Self::EngineSockets => "sockets of engines",
        }
    }
}

/// The choice of lines of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// All CPUs in one line.
    pub together: bool,
    /// Lines in which nothing happens are left out.
    pub busy_only: bool,
}

/// A table of an interval. Of what is not measured it has no lines, and [`Moment::absent`] says
/// why.
pub fn sheet(moment: &Moment, subject: Subject, choice: Choice) -> Sheet {
    match subject {
        Subject::Cpus => cpus(moment, choice),
        Subject::Interfaces => interfaces(moment, choice),
        Subject::Interrupts => interrupts(moment, choice),
        Subject::Sockets => sockets(moment, choice),
        Subject::Engines => engines(moment, choice),
        Subject::EngineSockets => engine_sockets(moment, choice),
    }
}

fn heads(names: &[(&'static str, usize)]) -> Vec<Head> {
    names.iter().map(|&(name, width)| Head { name, width }).collect()
}

/// The table of these CPUs.
pub fn cpu_sheet(rows: &[Row]) -> Sheet {
    let moment = Moment { cpus: rows.to_vec(), ..Moment::default() };
    cpus(&moment, Choice::default())
}

fn cpus(moment: &Moment, choice: Choice) -> Sheet {
    let width = |column: Column| if column.is_percent() { 3 } else { 6 };
    let mut names = vec![("CPU", 3)];
    names.extend(Column::ALL.map(|column| (column.name(), width(column))));
    let line = |name: Cell, value: &dyn Fn(Column) -> Option<f64>| {
        let mut cells = vec![name];
        cells.extend(Column::ALL.map(|column| Cell::whole(value(column))));
        cells
    };
    let mut sheet = Sheet { heads: heads(&names), ..Sheet::default() };
    if choice.together {
        let all = |column| of_all(&moment.cpus, column);
        sheet.rows.push(line(Cell::Text("all".to_owned()), &all));
        return sheet;
    }
    // As `top` has it: what is idle is less than half a percent busy.
    let is_busy = |idle: Option<f64>| !choice.busy_only || idle.is_none_or(|idle| idle < 99.5);
    let busy = moment.cpus.iter().filter(|row| is_busy(row.get(Column::Idl)));
    sheet.rows =
        busy.map(|row| line(Cell::Whole(f64::from(row.cpu)), &|column| row.get(column))).collect();
    sheet
}

fn interfaces(moment: &Moment, choice: Choice) -> Sheet {
    let line = |name: &str, one: &InterfaceRates| {
        let mut cells = vec![Cell::Text(name.to_owned())];
        for side in [&one.rx, &one.tx] {
            let values = [
                side.packets_per_s,
                side.bits_per_s,
                side.errors_per_s,
                side.dropped_per_s,
                side.fifo_per_s,
            ];
            cells.extend(values.map(Cell::Number));
        }
        cells
    };
    let is_busy = |one: &InterfaceRates| *one != InterfaceRates::default();
    let shown = moment.interfaces.iter().filter(|(_, one)| !choice.busy_only || is_busy(one));
    let total = InterfaceRates::total(moment.interfaces.values());
    Sheet {
        heads: heads(&[
            ("name", 10),
            ("in/s", 7),
            ("bit/s", 6),
            ("errs", 5),
            ("drop", 5),
            ("over", 5),
            ("out/s", 7),
            ("bit/s", 6),
            ("errs", 5),
            ("drop", 5),
            ("over", 5),
        ]),
        rows: shown.map(|(name, one)| line(name, one)).collect(),
        total: (moment.interfaces.len() > 1).then(|| line("all", &total)),
    }
}

/// CPUs of a source that are named; others are three points.
const CPUS_NAMED: usize = 4;

fn interrupts(moment: &Moment, choice: Choice) -> Sheet {
    let shown = moment.interrupts.iter().filter(|one| !choice.busy_only || one.per_s > 0.0);
    let line = |one: &SourceRates| {
        let share = |(cpu, rate): &(u32, f64)| format!("{cpu}:{:.0}%", rate * 100.0 / one.per_s);
        let mut cpus: Vec<String> = one.by_cpu.iter().take(CPUS_NAMED).map(share).collect();
        if one.by_cpu.len() > CPUS_NAMED {
            cpus.push("...".to_owned());
        }
        vec![
            Cell::Text(one.id.clone()),
            Cell::Text(one.name.clone()),
            Cell::Number(one.per_s),
            Cell::number(one.busy_percent),
            Cell::Text(cpus.join(" ")),
        ]
    };
    Sheet {
        heads: heads(&[("irq", 4), ("source", 24), ("intr/s", 7), ("tim%", 5), ("CPUs", 0)]),
        rows: shown.map(line).collect(),
        total: None,
    }
}

fn sockets(moment: &Moment, choice: Choice) -> Sheet {
    let all = moment.sockets.as_ref().map_or(&[][..], |sockets| &sockets.first);
    let is_busy = |one: &&SocketRates| {
        let listens = one.state == "LISTEN";
        let moves = |rate: Option<f64>| rate.is_some_and(|rate| rate > 0.0);
        !choice.busy_only
            || one.receive_queue > 0
            || (one.send_queue > 0 && !listens)
            || moves(one.received_bits_per_s)
            || moves(one.acked_bits_per_s)
            || moves(one.drops_per_s)
    };
    let count = |value: u32| Cell::Number(f64::from(value));
    let line = |one: &SocketRates| {
        vec![
            Cell::Text(format!("{} {}", one.protocol, one.state)),
            Cell::Text(one.local.clone()),
            Cell::Text(one.remote.clone().unwrap_or_else(|| "*".to_owned())),
            count(one.receive_queue),
            count(one.send_queue),
            Cell::number(one.receive_memory_bytes.map(f64::from)),
            Cell::number(one.received_bits_per_s),
            Cell::number(one.acked_bits_per_s),
            Cell::number(one.drops_per_s),
            Cell::number(one.retransmits_per_s),
            Cell::number(one.srtt_us.map(f64::from)),
        ]
    };
    Sheet {
        heads: heads(&[
            ("state", 14),
            ("local", 21),
            ("remote", 21),
            ("recv-q", 7),
            ("send-q", 7),
            ("r-mem", 6),
            ("in bit/s", 8),
            ("out bit/s", 9),
            ("drop", 5),
            ("retr", 5),
            ("rtt us", 6),
        ]),
        rows: all.iter().filter(is_busy).map(line).collect(),
        total: None,
    }
}

fn engines(moment: &Moment, choice: Choice) -> Sheet {
    let is_busy = |one: &&EngineRates| {
        !choice.busy_only || one.busy_turns_per_s.is_none_or(|turns| turns > 0.0)
    };
    let line = |one: &EngineRates| {
        let counts = [one.connections, one.udp_sockets];
        let rates = [
            one.rx_packets_per_s,
            one.rx_bits_per_s,
            one.tx_packets_per_s,
            one.tx_bits_per_s,
            one.drops_per_s,
            Some(one.held_bytes as f64),
            one.busy_turns_per_s,
        ];
        let mut cells = vec![Cell::Text(one.id.clone())];
        cells.extend(counts.map(|count| Cell::Number(count as f64)));
        cells.extend(rates.map(Cell::number));
        cells
    };
    Sheet {
        heads: heads(&[
            ("engine", 14),
            ("conns", 6),
            ("udp", 4),
            ("in/s", 7),
            ("bit/s", 6),
            ("out/s", 7),
            ("bit/s", 6),
            ("drop", 5),
            ("held", 6),
            ("turns/s", 7),
        ]),
        rows: moment.engines.all.iter().filter(is_busy).map(line).collect(),
        total: None,
    }
}

fn engine_sockets(moment: &Moment, choice: Choice) -> Sheet {
    let is_busy = |one: &&EngineSocket| {
        let moves = |rate: Option<f64>| rate.is_some_and(|rate| rate > 0.0);
        !choice.busy_only
            || one.receive_queue > 0
            || (one.send_queue.is_some_and(|bytes| bytes > 0) && one.state != "LISTEN")
            || moves(one.received_bits_per_s)
            || moves(one.acked_bits_per_s)
    };
    let count = |value: Option<u64>| Cell::number(value.map(|value| value as f64));
    let line = |one: &EngineSocket| {
        vec![
            Cell::Text(one.id.clone()),
            Cell::Text(one.state.clone()),
            Cell::Text(one.local.clone()),
            Cell::Text(one.remote.clone().unwrap_or_else(|| "*".to_owned())),
            count(Some(one.receive_queue)),
            count(one.send_queue),
            count(one.held_bytes),
            Cell::number(one.received_bits_per_s),
            Cell::number(one.acked_bits_per_s),
            Cell::number(one.retransmitted_bytes_per_s),
            count(one.srtt_us),
            Cell::Text(one.engine.clone()),
        ]
    };
    Sheet {
        heads: heads(&[
            ("socket", 9),
            ("state", 10),
            ("local", 21),
            ("remote", 21),
            ("recv-q", 7),
            ("send-q", 7),
            ("held", 6),
            ("in bit/s", 8),
            ("out bit/s", 9),
            ("retr B/s", 8),
            ("rtt us", 6),
            ("engine", 0),
        ]),
        rows: moment.engines.sockets.iter().filter(is_busy).map(line).collect(),
        total: None,
    }
}

/// The lines above the tables: load, pressure, sockets.
pub fn summary(moment: &Moment) -> Vec<String> {
    let load = moment.load.map_or("up -, load -".to_owned(), |load| {
        let [one, five, fifteen] = load.averages;
        let minutes = (load.up_s / 60.0) as u64;
        let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
        format!("up {days} d {hours}:{minutes:02}, load {one:.2} {five:.2} {fifteen:.2}")
    });
    vec![load, pressure(moment.pressure.as_ref()), socket_counts(moment)]
}

fn pressure(shares: Option<&PressureShares>) -> String {
    let Some(shares) = shares else { return "waits for CPU -, memory -, disk -".to_owned() };
    let one = |name: &str, share: super::Shares| {
        format!("{name} {:.1} % (all {:.1} %)", share.some_percent, share.full_percent)
    };
    let (cpu, memory, io) =
        (one("CPU", shares.cpu), one("memory", shares.memory), one("disk", shares.io));
    format!("waits for {cpu}, {memory}, {io}")
}

fn socket_counts(moment: &Moment) -> String {
    let Some(sockets) = &moment.sockets else { return "sockets -".to_owned() };
    let counts: Vec<String> =
        sockets.count.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let short = |bytes: u64| Cell::Number(bytes as f64).text();
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    let mut text = format!(
        "sockets: {counts}; {} B to be read, {} B to be acknowledged",
        short(sockets.receive_queue_bytes),
        short(sockets.send_queue_bytes),
    );
    if sockets.left_out > 0 {
        text.push_str(&format!("; {} not listed", sockets.left_out));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Absent;
    use crate::watch::Watch;

    fn moment() -> Moment {
        let why = Absent("not asked for".to_owned());
        Watch::open(Err(why)).unwrap().sample().unwrap()
    }

    #[test]
    fn every_table_has_a_cell_for_each_head_and_no_zero_for_what_is_missing() {
        let moment = moment();
        for subject in Subject::ALL {
            let sheet = sheet(&moment, subject, Choice::default());
            for row in sheet.rows.iter().chain(&sheet.total) {
                assert_eq!(row.len(), sheet.heads.len(), "{subject:?}");
            }
        }
        let cpus = sheet(&moment, Subject::Cpus, Choice::default());
        let csw = cpus.heads.iter().position(|head| head.name == "csw").unwrap();
        assert!(cpus.rows.iter().all(|row| row[csw] == Cell::Missing));
        let together = sheet(&moment, Subject::Cpus, Choice { together: true, busy_only: false });
        assert_eq!((together.rows.len(), together.rows[0][csw].text()), (1, "-".to_owned()));
        let nothing = Moment::default();
        assert!(summary(&nothing).iter().all(|line| line.contains('-')), "{:?}", summary(&nothing));
    }

    #[test]
    fn idle_lines_are_left_out_on_request() {
        let mut moment = moment();
        moment.interfaces.insert("idle0".to_owned(), InterfaceRates::default());
        let names = |choice: Choice| -> Vec<String> {
            let sheet = sheet(&moment, Subject::Interfaces, choice);
            sheet.rows.iter().map(|row| row[0].text()).collect()
        };
        assert!(names(Choice::default()).contains(&"idle0".to_owned()));
        assert!(
            !names(Choice { busy_only: true, ..Choice::default() }).contains(&"idle0".to_owned())
        );
    }
}
