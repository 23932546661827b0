//! Queueing disciplines of a namespace with what they counted, over netlink (tc(8)).

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};

use crate::Netlink;

/// Counters of a queueing discipline at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// Packets that it let through.
    pub sent_packets: u32,
    /// Their bytes, with the headers of the link.
    pub sent_bytes: u64,
    /// Packets that it dropped.
    pub drops: u32,
    /// Times that a packet had to wait for its turn by a rate.
    pub overlimits: u32,
    /// Packets that the device gave back.
    pub requeues: u32,
    /// Packets that wait now.
    pub waiting_packets: u32,
    /// Their bytes.
    pub waiting_bytes: u32,
}

impl Netlink {
    /// Returns the queueing disciplines of the namespace that have a queue, by interface, kind and
    /// handle (`eth0 tbf 1:`), or, without one, the class that they are of (`eth0 fq_codel :1`).
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn qdiscs(&mut self) -> io::Result<BTreeMap<String, Qdisc>> {
        let interfaces = self.interfaces()?;
        let name = |index: i32| {
            let of = interfaces.iter().find(|one| i64::from(one.index) == i64::from(index));
            of.map_or_else(|| index.to_string(), |one| one.name.clone())
        };
        let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
        let mut all = BTreeMap::new();
        for answer in self.request(request, NLM_F_DUMP)? {
            let RouteNetlinkMessage::NewQueueDiscipline(message) = answer else { continue };
            let (kind, counters) = read(&message.attributes);
            if kind != "noqueue" {
                let place = place(message.header.handle, message.header.parent);
                all.insert(format!("{} {kind} {place}", name(message.header.index)), counters);
            }
        }
        Ok(all)
    }
}

/// Returns where a queueing discipline is, as tc(8) writes it. The kernel gives those of the queues
/// of a device no handle.
fn place(handle: TcHandle, parent: TcHandle) -> String {
    match handle.major {
        0 if parent != TcHandle::ROOT => format!(":{:x}", parent.minor),
        major => format!("{major:x}:"),
    }
}

fn read(attributes: &[TcAttribute]) -> (String, Qdisc) {
    let (mut kind, mut counters) = (String::new(), Qdisc::default());
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(name) => kind.clone_from(name),
            TcAttribute::Stats2(all) => {
                for one in all {
                    match one {
                        TcStats2::Basic(basic) => {
                            counters.sent_packets = basic.packets;
                            counters.sent_bytes = basic.bytes;
                        }
                        TcStats2::Queue(queue) => {
                            counters.drops = queue.drops;
                            counters.overlimits = queue.overlimits;
                            counters.requeues = queue.requeues;
                            counters.waiting_packets = queue.qlen;
                            counters.waiting_bytes = queue.backlog;
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    (kind, counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_of_a_device_has_a_name_of_its_own() {
        let handle = |major, minor| TcHandle { major, minor };
        assert_eq!(place(handle(1, 0), TcHandle::ROOT), "1:");
        assert_eq!(place(handle(0, 0), TcHandle::ROOT), "0:");
        assert_eq!(place(handle(0, 0), handle(0, 10)), ":a");
        assert_eq!(place(handle(0x8001, 0), handle(1, 2)), "8001:");
    }
}
