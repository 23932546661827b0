//! A schedule: everything that decides a run, written down, so that a run can be repeated, made
//! smaller and kept.

use crate::*;

/// What one end is, and how it behaves until its schedule is over.
#[derive(Clone, Debug)]
pub struct End {
    pub config: Config,
    pub isn: u32,
    /// Reads whatever there is; else only what the schedule tells it to.
    pub eager: bool,
}

/// How the connection comes about. End 0 opens always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// End 1 listens.
    Listen,
    /// End 1 listens, and answers with SYN cookies.
    Cookie,
    /// Both open at the same moment (RFC 9293 3.5 figure 7).
    Both,
    /// End 1 listens, and keeps an entry of its SYN queue until the handshake is done.
    Queue,
    /// The same, and end 0 asks for a Fast Open cookie.
    Ask,
    /// The same, and end 0 has a cookie that end 1 does not know.
    Stale,
    /// End 0 has a good Fast Open cookie: end 1 opens early.
    Early,
}

impl Open {
    /// The Fast Open option may be in the SYN, and data with it.
    pub fn is_fast(self) -> bool {
        matches!(self, Open::Ask | Open::Stale | Open::Early)
    }
}

/// The way between the ends, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub delay_us: u64,
    /// Bottleneck in kbit/s; 0: none.
    pub kbit_per_s: u64,
    /// Payloads above this vanish; 0: none does.
    pub hole_bytes: u32,
    /// Most payload in one view.
    pub super_bytes: u32,
    /// Super-segments arrive as they left; else cut at their segment size.
    pub merge: bool,
    /// Payload is handed out as views; else in frames, one segment at a time.
    pub view: bool,
    /// Frames are handed out many at a time, as for a link without offloads; `view` does not count
    /// then.
    pub parts: bool,
    pub v6: bool,
    /// Timers are looked at only at multiples of this.
    pub tick_us: u64,
    /// All that arrives in this time is taken before anything is sent.
    pub batch_us: u64,
}

impl Default for Way {
    fn default() -> Way {
        Way {
            delay_us: 1000,
            kbit_per_s: 0,
            hole_bytes: 0,
            super_bytes: 0,
            merge: false,
            view: false,
            parts: false,
            v6: false,
            tick_us: 0,
            batch_us: 0,
        }
    }
}

/// What an application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// So many bytes more, as soon as there is room.
    Write(u32),
    /// At most so many bytes, of what there is.
    Read(u32),
    /// Ends its direction when all is written.
    Shutdown,
    /// Reads no more.
    ShutdownRead,
    /// Closes when all is written.
    Close,
    /// Closes now, whatever is unread or unwritten.
    CloseNow,
    Abort,
    Nodelay,
    /// New limit of the receive buffer.
    RecvBuffer(u32),
    /// New limit of the send buffer.
    SendBuffer(u32),
    /// A router says, truly, that packets of so many bytes are the largest.
    PathMtu(u16),
    /// Keep-alive probes at once, or none.
    Keepalive(bool),
    /// Gives back idle memory.
    Compact,
}

/// Something an application does, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    pub at_us: u64,
    pub end: u8,
    pub deed: Deed,
}

/// What becomes of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Lost,
    /// So much later.
    Late(u64),
    /// Comes again, so much later.
    Twice(u64),
    /// Only so many bytes of payload arrive; a FIN does not.
    Cut(u32),
    /// Arrives in two parts, the first of so many bytes.
    Split(u32),
    /// Marked as having met congestion, if it may be.
    Marked,
    /// One byte of payload is another: never generated; it shows that the checks see it.
    Corrupt,
}

/// The fate of the `nth` segment that `end` sends; the others arrive in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doom {
    pub end: u8,
    pub nth: u32,
    pub fate: Fate,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub ends: [End; 2],
    pub open: Open,
    pub way: Way,
    /// By time.
    pub actions: Vec<Action>,
    pub dooms: Vec<Doom>,
}

impl Schedule {
    /// Nothing happens but a handshake and an end.
    pub fn empty() -> Schedule {
        let end = |isn| End { config: Config::default(), isn, eager: true };
        Schedule {
            ends: [end(1000), end(2000)],
            open: Open::Listen,
            way: Way::default(),
            actions: Vec::new(),
            dooms: Vec::new(),
        }
    }

    /// Segments lost, by fate; what the black hole takes is not counted.
    pub fn losses(&self) -> usize {
        self.dooms.iter().filter(|d| matches!(d.fate, Fate::Lost | Fate::Cut(_))).count()
    }

    /// When the last action is due.
    pub fn end_us(&self) -> u64 {
        self.actions.iter().map(|action| action.at_us).max().unwrap_or(0)
    }
}

/// A parameter of `Config` by its name: how to read it and how to set it.
pub struct Parameter {
    pub name: &'static str,
    pub get: fn(&Config) -> u64,
    pub set: fn(&mut Config, u64),
}

macro_rules! parameters {
    ($($name:literal $get:expr, $set:expr;)*) => {
        /// Every parameter that a schedule may vary.
        pub const PARAMETERS: &[Parameter] =
            &[$(Parameter { name: $name, get: $get, set: $set }),*];
    };
}

parameters! {
    "mss" |c| c.mss.into(), |c, v| c.mss = v as u16;
    "recv" |c| c.recv_buffer_bytes as u64, |c, v| c.recv_buffer_bytes = v as usize;
    "send" |c| c.send_buffer_bytes as u64, |c, v| c.send_buffer_bytes = v as usize;
    "recv_auto_tune" |c| c.recv_auto_tune.into(), |c, v| c.recv_auto_tune = v > 0;
    "send_auto_tune" |c| c.send_auto_tune.into(), |c, v| c.send_auto_tune = v > 0;
    "nagle" |c| c.nagle.into(), |c, v| c.nagle = v > 0;
    "delayed_ack_ms" |c| c.delayed_ack_ms.into(), |c, v| c.delayed_ack_ms = v as u16;
    "window_scale" |c| c.window_scale.into(), |c, v| c.window_scale = v > 0;
    "timestamps" |c| c.timestamps.into(), |c, v| c.timestamps = v > 0;
    "sack" |c| c.sack.into(), |c, v| c.sack = v > 0;
    "ecn" |c| c.ecn as u64, |c, v| c.ecn = [EcnMode::Off, EcnMode::Accept, EcnMode::Request][v.min(2) as usize];
    "pacing" |c| c.pacing.into(), |c, v| c.pacing = v > 0;
    "control" |c| CONTROLS.iter().position(|&it| it == c.congestion).unwrap_or(0) as u64, |c, v| c.congestion = CONTROLS[v.min(2) as usize];
    "iw" |c| c.initial_window_segments.into(), |c, v| c.initial_window_segments = v as u16;
    "time_wait_ms" |c| c.time_wait_ms.into(), |c, v| c.time_wait_ms = v as u32;
    "fin_wait_2_ms" |c| c.fin_wait_2_ms.into(), |c, v| c.fin_wait_2_ms = v as u32;
    "syn_retries" |c| c.syn_retries.into(), |c, v| c.syn_retries = v as u8;
    "retries" |c| c.retries.into(), |c, v| c.retries = v as u8;
    "user_timeout_ms" |c| c.user_timeout_ms.unwrap_or(0).into(), |c, v| c.user_timeout_ms = (v > 0).then_some(v as u32);
    "keepalive_s" |c| c.keepalive.map_or(0, |k| k.idle_s).into(), |c, v| c.keepalive = keepalive(v as u32);
    "probing" |c| c.mtu_probing as u64, |c, v| c.mtu_probing = PROBINGS[v.min(2) as usize];
    "linger_s" |c| c.linger_s.map_or(0, |s| u64::from(s) + 1), |c, v| c.linger_s = (v > 0).then(|| v as u16 - 1);
    "min_rto_ms" |c| c.min_rto_ms.into(), |c, v| c.min_rto_ms = v as u16;
}

/// By the number that `control` stands for.
pub const CONTROLS: [CongestionKind; 3] =
    [CongestionKind::NEW_RENO, CongestionKind::CUBIC, CongestionKind::BBR];

/// By the number that `probing` stands for.
pub const PROBINGS: [MtuProbing; 3] =
    [MtuProbing::Off, MtuProbing::AfterBlackHole, MtuProbing::Always];

/// Probes after `idle_s` (0: none), patient enough for any schedule.
pub fn keepalive(idle_s: u32) -> Option<Keepalive> {
    (idle_s > 0).then_some(Keepalive { idle_s, interval_s: idle_s as u16, probes: 20 })
}
