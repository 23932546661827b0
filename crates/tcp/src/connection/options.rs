//! Options that an application may set on a connection while it lives, and read back.

use std::sync::Arc;

use crate::config::Config;
use crate::connection::Connection;
use crate::limits::{self, MIN_MSS_BYTES};

impl Connection {
    /// The parameters as they are now, shared with other connections until one is changed here; see
    /// [`is_nodelay`](Self::is_nodelay) for Nagle's rule.
    pub fn config(&self) -> &Config {
        &self.cx.config
    }

    /// Takes over what may change while the connection is open: keep-alive, the user timeout, which
    /// holds from the next time-out on, the linger time, the time in FIN-WAIT-2, the longest time
    /// that an ACK is held back, and, for the owner who makes the IP headers, DiffServ code point
    /// and hop limit (RFC 9293 3.9.1.6 and 3.9.2).
    pub fn set_config(&mut self, to: &Config) {
        let config = Config {
            keepalive: to.keepalive,
            user_timeout_ms: to.user_timeout_ms,
            linger_s: to.linger_s,
            fin_wait_2_ms: to.fin_wait_2_ms,
            delayed_ack_ms: to.delayed_ack_ms.min(limits::MAX_DELAYED_ACK_MS),
            dscp: to.dscp & 63,
            hop_limit: to.hop_limit.max(1),
            ..Config::clone(&self.cx.config)
        };
        let is_other_keepalive = config.keepalive != self.cx.config.keepalive;
        // One that has not changed stays shared with other connections.
        if config != *self.cx.config {
            self.cx.config = Arc::new(config);
        }
        if is_other_keepalive {
            self.cx.begin_rare();
            self.cx.timers.stop_keepalive();
            self.cx.touch_keepalive();
        }
    }

    /// Small segments are sent at once (true) or may wait for outstanding ones (false).
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.sending.snd.nagle = !nodelay;
    }

    /// Returns whether they are.
    pub fn is_nodelay(&self) -> bool {
        !self.sending.snd.nagle
    }

    /// Has a tail that fills no segment wait for more data (true), or sends it (false). A FIN ends
    /// the wait, and so does a retransmission time-out with nothing outstanding, 200 ms at least,
    /// as in Linux (`TCP_CORK`).
    pub fn set_cork(&mut self, cork: bool) {
        self.cx.begin_rare();
        self.cx.is_corked = cork;
    }

    /// Returns whether such a tail waits.
    pub fn is_corked(&self) -> bool {
        self.cx.is_corked
    }

    /// Bounds segments to so many bytes of payload and TCP options, at least 88
    /// (`TCP_MAXSEG`), or not any more. Before the SYN is sent it offers no more to the peer.
    pub fn set_max_segment(&mut self, bytes: Option<u16>) {
        self.cx.begin_rare();
        self.sending.set_own_mss(&mut self.cx, bytes.map(|bytes| bytes.max(MIN_MSS_BYTES)));
    }

    /// Returns that bound.
    pub fn max_segment(&self) -> Option<u16> {
        self.sending.path.own()
    }

    /// Tells whether the application is about to write more: then what does not fill what the link
    /// takes at once waits for it, as long as an ACK is to come, so that each super-segment is
    /// whole. A FIN ends that, and so does this call.
    pub fn set_more_follows(&mut self, more: bool) {
        self.sending.snd.more_follows = more;
    }

    /// Acknowledges what waits at once, and the next segments as they come, until data goes the
    /// other way.
    pub fn quick_ack(&mut self) {
        self.receiving.ack.hasten();
    }

    /// Bounds of the buffers in bytes of memory held; one that is set is not tuned from now on, as
    /// by Linux. A larger window is offered at once, whether anybody reads or not; one that was
    /// offered stays, and so does the window shift as negotiated.
    pub fn set_buffers(&mut self, recv_bytes: Option<usize>, send_bytes: Option<usize>) {
        let least = crate::limits::BUFFER_MIN_BYTES;
        if let Some(bytes) = recv_bytes {
            let config = Arc::make_mut(&mut self.cx.config);
            config.recv_buffer_bytes = bytes.max(least);
            config.recv_auto_tune = false;
            self.receiving.set_limit(&self.cx, bytes.max(least));
        }
        if let Some(bytes) = send_bytes {
            let config = Arc::make_mut(&mut self.cx.config);
            config.send_buffer_bytes = bytes.max(least);
            config.send_auto_tune = false;
            self.sending.snd.set_queue_limit(bytes.max(least));
        }
    }
}
