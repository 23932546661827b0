//! Properties and counters that are kept of a link that has failed.

use std::os::fd::RawFd;

use millstream_link::{Capabilities, Link, LinkError, LinkStats, Medium, Share};
use millstream_packet::{Instant, PacketBatch, Pool};
use millstream_wire::ethernet::MacAddr;

/// The properties and counters of a link that has failed. The link itself is gone, with all that it
/// held of the system: descriptors, memory, a program on an interface.
pub(in crate::engine) struct Ended {
    capabilities: Capabilities,
    share: Share,
    is_down: bool,
    notes: Vec<String>,
    details: Vec<(&'static str, u64)>,
    stats: LinkStats,
    name: String,
}

impl Ended {
    /// In the place of a link that was removed.
    pub fn nothing() -> Self {
        Self {
            capabilities: Capabilities::plain(Medium::Ip, 0, MacAddr::ZERO),
            share: Share::ALL,
            is_down: true,
            notes: Vec::new(),
            details: Vec::new(),
            stats: LinkStats::default(),
            name: String::new(),
        }
    }

    /// As `link` is at its end.
    pub fn of(link: &dyn Link) -> Self {
        Self {
            capabilities: link.capabilities().clone(),
            share: link.share(),
            is_down: link.is_down(),
            notes: link.notes().to_vec(),
            details: link.details(),
            stats: link.stats(),
            name: link.name().to_owned(),
        }
    }
}

impl Link for Ended {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn receive(&mut self, _: Instant, _: &Pool, _: &mut PacketBatch) -> Result<usize, LinkError> {
        Ok(0)
    }

    /// Takes nothing: the engine drops what is for a link that has failed.
    fn transmit(&mut self, _: Instant, _: &Pool, _: &mut PacketBatch) -> Result<usize, LinkError> {
        Ok(0)
    }

    fn wait_fd(&self) -> Option<RawFd> {
        None
    }

    fn share(&self) -> Share {
        self.share
    }

    fn is_down(&self) -> bool {
        self.is_down
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn details(&self) -> Vec<(&'static str, u64)> {
        self.details.clone()
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}
