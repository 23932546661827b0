//! The end of a connection by time: how often it tries, how long it lingers, when it asks a silent
//! peer.

use core::time::Duration;

use crate::config::Config;
use crate::connection::context::Context;
use crate::state::State;

impl Context {
    /// Time-outs in a row that end it (RFC 9293 3.8.3: R2); nobody waits for what an orphan still
    /// has to deliver.
    pub(super) fn retry_limit(&self) -> u8 {
        let Config { retries, orphan_retries, .. } = *self.config;
        if self.orphaned { retries.min(orphan_retries) } else { retries }
    }

    /// An orphan has probed a shut window for long enough, whether it was answered or not.
    pub(super) fn is_given_up(&self) -> bool {
        self.orphaned && self.rtt.backoff() >= self.retry_limit()
    }

    /// Starts the keep-alive clock anew: the peer was heard.
    #[inline]
    pub(super) fn touch_keepalive(&mut self) {
        let Some(keepalive) = self.config.keepalive else { return };
        if matches!(
            self.state,
            State::Closed | State::SynSent | State::SynReceived | State::TimeWait
        ) {
            return;
        }
        self.timers.arm_keepalive(self.now + Duration::from_secs(u64::from(keepalive.idle_s)));
    }

    /// Closed by the application: what is to end by time, if it is not counted yet.
    pub(crate) fn arm_close(&mut self) {
        if let Some(seconds) = self.config.linger_s
            && self.state.may_transmit_data()
            && self.timers.close_at().is_none()
        {
            self.timers.arm_close(self.now + Duration::from_secs(u64::from(seconds)));
        }
        self.arm_fin_wait_2();
    }

    /// A connection closed both ways does not wait for the peer's FIN for ever.
    pub(super) fn arm_fin_wait_2(&mut self) {
        if self.orphaned && self.state == State::FinWait2 && self.timers.close_at().is_none() {
            let wait = Duration::from_millis(u64::from(self.config.fin_wait_2_ms));
            self.timers.arm_close(self.now + wait);
        }
    }
}
