//! Counters of TCP's rare events: losses and what was done about them, and segments that were not
//! taken. Each connection counts for itself; its owner adds that up.

use millstream_packet::{counters, reasons};

reasons! {
    /// Why a segment, or all data in it, was thrown away. Indexes [`TcpStats::drops`].
    #[non_exhaustive]
    pub enum TcpDrop {
        /// A TCP segment whose timestamp is older than the last (PAWS, RFC 7323 5).
        OldTimestamp = "tcp_old_timestamp",
        /// A TCP segment without a timestamp where timestamps were agreed on (RFC 7323 3.2).
        NoTimestamp = "tcp_no_timestamp",
        /// A TCP segment before what is expected: all of it has come before, or it asks whether
        /// somebody is there (keep-alive).
        Duplicate = "tcp_duplicate",
        /// TCP data out of order that had come before.
        OutOfOrderDuplicate = "tcp_out_of_order_duplicate",
        /// TCP data for a window that is shut: a window probe, mostly.
        ZeroWindow = "tcp_zero_window",
        /// A TCP segment outside the window, beyond what is expected.
        OutOfWindow = "tcp_out_of_window",
        /// A TCP segment that acknowledges what was never sent, or what is long past.
        UnacceptableAck = "tcp_unacceptable_ack",
        /// A SYN on a connection that is open: challenged (RFC 5961 4).
        ChallengedSyn = "tcp_challenged_syn",
        /// A reset in the window whose number is not the next: challenged (RFC 5961 3).
        ChallengedReset = "tcp_challenged_reset",
        /// A TCP segment without ACK.
        NoAck = "tcp_no_ack",
        /// A TCP segment that cannot answer our SYN: no SYN, or a reset that acknowledges nothing.
        NotSynAck = "tcp_not_syn_ack",
        /// TCP data after the peer's FIN.
        AfterFin = "tcp_after_fin",
        /// TCP data that nobody is going to read, as the application has closed: answered by a
        /// reset.
        Unread = "tcp_unread",
        /// An old TCP segment that met TIME-WAIT.
        TimeWait = "tcp_time_wait",
        /// A TCP segment for a connection that had ended a moment before.
        Closed = "tcp_closed",
    }
}

counters! {
    /// Counters of the rare events of connections. They only grow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct TcpStats {
        /// TCP segments sent again, SYNs included.
        retransmitted_segments: count,
        /// Bytes of payload of TCP segments sent again.
        retransmitted_bytes: bytes,
        /// Times that the retransmission timer of a TCP connection expired.
        timeouts: count,
        /// Times that a TCP connection began to recover by a time-out.
        timeout_recoveries: count,
        /// Times that a TCP connection found a loss without a time-out and began to recover.
        fast_recoveries: count,
        /// Probes for a loss at the tail (RFC 8985 7).
        loss_probes: count,
        /// Recoveries taken back, as nothing had been lost.
        spurious_recoveries: count,
        /// Bytes sent again that the peer says arrived twice.
        spurious_bytes: bytes,
        /// TCP segments received before what comes before them.
        out_of_order_segments: count,
        /// Times that TCP segments of ours were seen to arrive in another order.
        reorderings: count,
        /// Duplicate ACKs received.
        duplicate_acks_in: count,
        /// ACKs received that report a duplicate (RFC 2883).
        dsacks_in: count,
        /// ACKs sent that report a duplicate.
        dsacks_out: count,
        /// TCP segments received that offer no window.
        zero_windows_in: count,
        /// TCP segments sent that offer no window.
        zero_windows_out: count,
        /// Probes of a window that is shut.
        window_probes: count,
        /// Keep-alive probes sent.
        keepalives: count,
        /// Challenge ACKs sent, within their rate (RFC 5961 7).
        challenge_acks: count,
        /// Times that received TCP data found no memory, or gave way.
        memory_drops: count,
        /// ICMP errors that quote a TCP segment which is not under way.
        icmp_not_outstanding: count,
        /// TCP segments received with a congestion mark.
        ce_segments_in: count,
        /// Windows reduced as the peer echoed a congestion mark.
        ecn_reductions: count,
        /// Times that segments of full size stopped arriving, and smaller ones were tried.
        black_holes: count,
        /// Probes of a larger path MTU.
        mtu_probes: count,
        /// Probes of a larger path MTU that were lost.
        mtu_probes_lost: count,
    } and {
        /// Segments that were thrown away, by [`TcpDrop::index`].
        pub drops: [u64; TcpDrop::COUNT] = [0; TcpDrop::COUNT],
    }
}

impl TcpStats {
    /// Returns the segments thrown away for `reason`.
    pub fn dropped(&self, reason: TcpDrop) -> u64 {
        self.drops[reason.index()]
    }

    /// Adds what `now` has beyond `before`.
    pub(crate) fn add_since(&mut self, now: &Self, before: &Self) {
        self.add_grown(now, before);
        for (sum, (now, before)) in self.drops.iter_mut().zip(now.drops.iter().zip(before.drops)) {
            *sum += now - before;
        }
    }
}
