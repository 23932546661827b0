//! The names of sockets in questions and answers.

use std::fmt::{self, Display};

use crate::socket::{SocketId, SocketKind};

/// The name of a socket here: its kind, its slot, and how often that was used before.
pub(in crate::engine::live) struct Id(pub SocketId);

impl Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}.{}", kind_name(self.0.kind()), self.0.slot(), self.0.generation())
    }
}

fn kind_name(kind: SocketKind) -> &'static str {
    match kind {
        SocketKind::Tcp => "tcp",
        SocketKind::Listener => "listen",
        SocketKind::Udp => "udp",
        SocketKind::Icmp => "icmp",
    }
}

/// Returns the socket that a word names.
pub(in crate::engine::live) fn parse_id(text: &str) -> Option<SocketId> {
    let kinds = [SocketKind::Tcp, SocketKind::Listener, SocketKind::Udp, SocketKind::Icmp];
    let kind = kinds.into_iter().find(|&kind| text.starts_with(kind_name(kind)))?;
    let (slot, generation) = text[kind_name(kind).len()..].split_once('.')?;
    Some(SocketId::new(kind, slot.parse().ok()?, generation.parse().ok()?))
}
