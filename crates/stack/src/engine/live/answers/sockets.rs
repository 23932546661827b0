//! `ss`: the sockets; `ss -a`: also what has no socket, which are unfinished handshakes and what is
//! left in TIME-WAIT.

use millstream_live::Fields;
use millstream_tcp::State;

use super::{Page, Pages, Table, Walk, Written, put_link, us};
use crate::engine::Engine;
use crate::engine::live::id::Id;
use crate::engine::tcp::table::TcpSocket;

const ALL: &[Table] =
    &[Table::Listeners, Table::Tcp, Table::Udp, Table::Icmp, Table::HalfOpen, Table::TimeWait];

/// Tables whose entries are sockets come first.
const SOCKET_TABLES: usize = 4;

/// See the module text.
pub(super) struct Sockets {
    at: Walk,
}

impl Sockets {
    pub fn new(all: bool) -> Self {
        Self { at: Walk::over(if all { ALL } else { &ALL[..SOCKET_TABLES] }) }
    }
}

impl Pages for Sockets {
    fn write(&mut self, engine: &mut Engine, page: &mut Page) -> Written {
        let engine = &*engine;
        Ok(self.at.look(engine, page, |table, slot, page| {
            show(engine, table, slot, page);
        }))
    }
}

/// Shows what is in a slot; `None` where nothing is.
fn show(engine: &Engine, table: Table, slot: u32, page: &mut Page) -> Option<()> {
    match table {
        Table::Listeners => listener(engine, slot, page),
        Table::Tcp => {
            let one = engine.tcp.table.sockets.get(slot)?;
            let mut line = page.line("socket");
            line.put("id", Id(one.id));
            connection(one, &mut line);
            line.end();
            Some(())
        }
        Table::Udp => {
            let one = engine.udp.sockets.get(slot)?;
            let mut line = page.line("socket");
            line.put("id", Id(one.id)).put("state", "UNCONN").put("local", one.local);
            if let Some(remote) = one.remote {
                line.put("remote", remote);
            }
            line.put("recv_q", one.queue.len()).put("held_bytes", one.held_bytes);
            line.put("limit_bytes", one.limit_bytes).put("refused", one.refused);
            if let Some(rule) = engine.udp.rules.list.iter().find(|rule| rule.id == one.id) {
                line.put("intercepts", rule.target.prefix);
            }
            if one.flow.is_some() {
                line.put("intercepted", 1);
            }
            line.end();
            Some(())
        }
        Table::Icmp => {
            let one = engine.echo.sockets.get(slot)?;
            let mut line = page.line("socket");
            line.put("id", Id(one.id)).put("state", "UNCONN").put("identifier", one.identifier);
            if let Some(prefix) = one.intercepts {
                line.put("intercepts", prefix);
            }
            line.put("recv_q", one.queue.len()).put("held_bytes", one.held_bytes);
            line.put("limit_bytes", one.limit_bytes);
            line.end();
            Some(())
        }
        Table::HalfOpen => half_open(engine, slot, page),
        Table::TimeWait => {
            let one = engine.tcp.table.time_wait.get(slot)?;
            let (ends, due) = (one.key.unpack(), engine.tcp.table.time_wait.wheel.deadline(slot));
            let mut line = page.line("socket");
            line.put("state", State::TimeWait.name());
            line.put("local", ends.local).put("remote", ends.remote).put("owner", "none");
            if let Some(due) = due {
                line.put("due_us", us(engine.cx.now, due));
            }
            line.end();
            Some(())
        }
        Table::Neighbors | Table::Links => None,
    }
}

fn listener(engine: &Engine, slot: u32, page: &mut Page) -> Option<()> {
    let one = engine.tcp.table.listeners.slots.get(slot)?;
    let mut line = page.line("socket");
    line.put("id", Id(one.id)).put("state", "LISTEN").put("local", one.local);
    line.put("recv_q", one.waiting).put("send_q", one.backlog);
    line.put("half_open", one.half_open).put("syns", one.stats.syns);
    if let Some(rule) = &one.intercept {
        line.put("intercepts", rule.target.prefix);
    }
    line.end();
    Some(())
}

/// Shows a handshake that is not finished.
pub(super) fn half_open(engine: &Engine, slot: u32, page: &mut Page) -> Option<()> {
    let one = engine.tcp.table.half_open.get(slot)?;
    let (ends, request) = (one.key.unpack(), &one.value);
    let due = engine.tcp.table.half_open.wheel.deadline(slot);
    let mut line = page.line("socket");
    line.put("state", State::SynReceived.name());
    line.put("local", ends.local).put("remote", ends.remote).put("owner", "none");
    if let Some(listener) = engine.tcp.table.listeners.slots.get(request.listener) {
        line.put("listener", Id(listener.id));
        if listener.intercept.is_some() {
            line.put("waits_for", "verdict");
        }
    }
    if let Some(link) = engine.ip.reach.links.by_serial(request.link) {
        put_link(&mut line, engine, link);
    }
    line.put("age_us", us(request.open.since(), engine.cx.now));
    line.put("timeouts", request.open.timeouts());
    if let Some(due) = due {
        line.put("due_us", us(engine.cx.now, due));
    }
    line.end();
    Some(())
}

/// Writes the fields of a connection.
fn connection(socket: &TcpSocket, line: &mut Fields<'_>) {
    let (ends, info) = (socket.conn.ends(), socket.conn.info());
    line.put("state", info.state.name()).put("local", ends.local).put("remote", ends.remote);
    line.put("recv_q", info.recv_queue_bytes).put("send_q", info.send_queue_bytes);
    line.put("held_bytes", socket.conn.held_bytes());
    line.put("owner", if socket.detached { "none" } else { "application" });
    let words = [("congestion", info.congestion), ("ca_state", info.ca_state)];
    for (key, word) in words {
        line.put(key, word);
    }
    let numbers = [
        ("rto_us", info.rto_us),
        ("snd_mss_bytes", u64::from(info.snd_mss_bytes)),
        ("rcv_mss_bytes", u64::from(info.rcv_mss_bytes)),
        ("cwnd_bytes", info.cwnd_bytes),
        ("in_flight_bytes", info.in_flight_bytes),
        ("lost_bytes", info.lost_bytes),
        ("notsent_bytes", info.notsent_bytes),
        ("snd_wnd_bytes", info.snd_wnd_bytes),
        ("rcv_wnd_bytes", info.rcv_wnd_bytes),
        ("out_of_order_bytes", info.out_of_order_bytes),
        ("bytes_sent", info.bytes_sent),
        ("bytes_retransmitted", info.bytes_retransmitted),
        ("bytes_acked", info.bytes_acked),
        ("bytes_received", info.bytes_received),
        ("segments_out", info.segments_out),
        ("segments_in", info.segments_in),
        ("retransmits", u64::from(info.retransmits)),
        ("timeouts", u64::from(info.timeouts)),
        ("busy_us", info.busy_us),
        ("rwnd_limited_us", info.rwnd_limited_us),
        ("sndbuf_limited_us", info.sndbuf_limited_us),
        ("last_data_sent_us", info.last_data_sent_us),
        ("last_data_received_us", info.last_data_received_us),
    ];
    for (key, number) in numbers {
        line.put_number(key, number);
    }
    // A field that has no value yet, or no limit, is absent.
    let measured = |number: u64| (number != 0).then_some(number);
    let more = [
        ("srtt_us", measured(info.srtt_us)),
        ("rttvar_us", measured(info.rttvar_us)),
        ("min_rtt_us", measured(info.min_rtt_us)),
        ("ssthresh_bytes", info.ssthresh_bytes),
        ("delivery_rate_bytes_per_s", measured(info.delivery_rate_bytes_per_s)),
        ("pacing_rate_bytes_per_s", measured(info.pacing_rate_bytes_per_s)),
    ];
    for (key, number) in more.into_iter().filter_map(|(key, number)| Some((key, number?))) {
        line.put_number(key, number);
    }
}
