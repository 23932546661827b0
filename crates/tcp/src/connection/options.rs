//! Options that an application may set on a connection while it lives, and read back.

use std::sync::Arc;

use crate::config::{Config, Keepalive};
use crate::connection::Connection;
use crate::limits;

impl Connection {
    /// The parameters as they are now, shared with other connections until one is changed here; see
    /// [`is_nodelay`](Self::is_nodelay) for Nagle's rule.
    pub fn config(&self) -> &Config {
        &self.cx.config
    }

    /// Small segments are sent at once (true) or may wait for outstanding ones (false).
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.sending.snd.nagle = !nodelay;
    }

    /// Returns whether they are.
    pub fn is_nodelay(&self) -> bool {
        !self.sending.snd.nagle
    }

    /// Tells whether the application is about to write more: then what does not fill what the link
    /// takes at once waits for it, as long as an ACK is to come, so that each super-segment is
    /// whole. A FIN ends that, and so does this call.
    pub fn set_more_follows(&mut self, more: bool) {
        self.sending.snd.more_follows = more;
    }

    /// Starts, changes or stops keep-alive probes.
    pub fn set_keepalive(&mut self, keepalive: Option<Keepalive>) {
        Arc::make_mut(&mut self.cx.config).keepalive = keepalive;
        self.cx.begin_rare();
        self.cx.timers.stop_keepalive();
        self.cx.touch_keepalive();
    }

    /// Sets how long data may go unacknowledged before the connection ends (RFC 5482); none: as
    /// often as it is tried. Holds from the next time-out on.
    pub fn set_user_timeout(&mut self, timeout_ms: Option<u32>) {
        Arc::make_mut(&mut self.cx.config).user_timeout_ms = timeout_ms;
    }

    /// Sets how long a closed connection may go on sending what was written; see
    /// [`Config::linger_s`].
    pub fn set_linger(&mut self, linger_s: Option<u16>) {
        Arc::make_mut(&mut self.cx.config).linger_s = linger_s;
    }

    /// Longest time that an ACK is held back, in milliseconds, less than 500 (RFC 9293 3.8.6.3); 0
    /// acknowledges every segment.
    pub fn set_delayed_ack(&mut self, delay_ms: u16) {
        Arc::make_mut(&mut self.cx.config).delayed_ack_ms =
            delay_ms.min(limits::MAX_DELAYED_ACK_MS);
    }

    /// Acknowledges what waits at once, and the next segments as they come, until data goes the
    /// other way.
    pub fn quick_ack(&mut self) {
        self.receiving.ack.hasten();
    }

    /// DiffServ code point and hop limit (TTL) of packets from now on (RFC 9293 3.9.1.6 and 3.9.2).
    /// For the owner, who makes the IP headers.
    pub fn set_ip(&mut self, dscp: u8, hop_limit: u8) {
        let config = Arc::make_mut(&mut self.cx.config);
        (config.dscp, config.hop_limit) = (dscp & 63, hop_limit.max(1));
    }

    /// Bounds of the buffers in bytes of memory held; one that is set is not tuned from now on, as
    /// by Linux. The window already offered stays; the window shift stays as negotiated.
    pub fn set_buffers(&mut self, recv_bytes: Option<usize>, send_bytes: Option<usize>) {
        let least = crate::limits::BUFFER_MIN_BYTES;
        if let Some(bytes) = recv_bytes {
            let config = Arc::make_mut(&mut self.cx.config);
            config.recv_buffer_bytes = bytes.max(least);
            config.recv_auto_tune = false;
            self.receiving.rcv.set_limit(bytes.max(least));
        }
        if let Some(bytes) = send_bytes {
            let config = Arc::make_mut(&mut self.cx.config);
            config.send_buffer_bytes = bytes.max(least);
            config.send_auto_tune = false;
            self.sending.snd.set_queue_limit(bytes.max(least));
        }
    }
}
