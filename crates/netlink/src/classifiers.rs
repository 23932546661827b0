//! Classifiers of the interfaces of a namespace, which look at packets: XDP programs and the
//! filters of tc(8).

use std::collections::BTreeMap;
use std::io;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_packet_route::tc::{
    TcAttribute, TcFilterBpfOption, TcHandle, TcHeader, TcMessage, TcOption,
};

use crate::Netlink;

/// Something that looks at packets of an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Classifier {
    /// The interface.
    pub interface: String,
    /// `XDP`; of a filter its kind and where it is, as `tc u32 ingress`.
    pub kind: String,
    /// The number of the BPF program, where it is one.
    pub program: Option<u32>,
}

/// Places of filters, each with the parent by which it is asked for. A queueing discipline at the
/// root has filters, too.
const PLACES: [(&str, TcHandle); 3] = [
    ("root", TcHandle::UNSPEC),
    ("ingress", TcHandle { major: u16::MAX, minor: 0xfff2 }),
    ("egress", TcHandle { major: u16::MAX, minor: 0xfff3 }),
];

/// Bits of a filter's handle that number it among those of its hash table (u32).
const NODE: u16 = 0xfff;

impl Netlink {
    /// Returns what looks at packets of the namespace's interfaces, and how many are alike.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn classifiers(&mut self) -> io::Result<BTreeMap<Classifier, usize>> {
        let mut found: BTreeMap<Classifier, usize> = BTreeMap::new();
        let links =
            self.request(RouteNetlinkMessage::GetLink(LinkMessage::default()), NLM_F_DUMP)?;
        for link in links {
            let RouteNetlinkMessage::NewLink(link) = link else { continue };
            let name = link.attributes.iter().find_map(|one| match one {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            let interface = name.unwrap_or_else(|| link.header.index.to_string());
            let mut add = |kind: String, program| {
                let one = Classifier { interface: interface.clone(), kind, program };
                *found.entry(one).or_default() += 1;
            };
            if let Some(program) = link.attributes.iter().find_map(program_of) {
                add("XDP".to_owned(), Some(program));
            }
            for (place, parent) in PLACES {
                let header =
                    TcHeader { index: link.header.index as i32, parent, ..TcHeader::default() };
                let mut request = TcMessage::default();
                request.header = header;
                // An interface without such a place refuses or has none.
                let filters =
                    self.request(RouteNetlinkMessage::GetTrafficFilter(request), NLM_F_DUMP);
                for filter in filters.unwrap_or_default() {
                    if let RouteNetlinkMessage::NewTrafficFilter(filter) = filter
                        && let Some((kind, program)) = read(&filter)
                    {
                        add(format!("tc {kind} {place}"), program);
                    }
                }
            }
        }
        Ok(found)
    }
}

/// Returns the number of an interface's XDP program.
fn program_of(attribute: &LinkAttribute) -> Option<u32> {
    let LinkAttribute::Xdp(all) = attribute else { return None };
    all.iter().find_map(|one| match one {
        LinkXdp::ProgId(program) => Some(*program),
        _ => None,
    })
}

/// Returns the kind of a filter and the number of its BPF program; none of a hash table or of a
/// priority by itself.
fn read(filter: &TcMessage) -> Option<(String, Option<u32>)> {
    let (mut kind, mut program) = (None, None);
    for attribute in &filter.attributes {
        match attribute {
            TcAttribute::Kind(name) => kind = Some(name.clone()),
            TcAttribute::Options(options) => {
                program = options.iter().find_map(|one| match one {
                    TcOption::Bpf(TcFilterBpfOption::ProgId(program)) => Some(*program),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let (kind, handle) = (kind?, &filter.header.handle);
    let is_one = match kind.as_str() {
        "u32" => handle.minor & NODE != 0,
        _ => *handle != TcHandle::UNSPEC,
    };
    is_one.then_some((kind, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_told_by_its_kind_and_a_hash_table_is_none() {
        let filter = |kind: &str, minor, options| {
            let mut message = TcMessage::default();
            message.header.handle = TcHandle { major: 0x8000, minor };
            let kind = TcAttribute::Kind(kind.to_owned());
            message.attributes = vec![kind, TcAttribute::Options(options)];
            read(&message)
        };
        assert_eq!(filter("u32", 0x801, vec![]), Some(("u32".to_owned(), None)));
        assert_eq!(filter("u32", 0, vec![]), None);
        let program = vec![TcOption::Bpf(TcFilterBpfOption::ProgId(12))];
        assert_eq!(filter("bpf", 1, program), Some(("bpf".to_owned(), Some(12))));
        let xdp = LinkAttribute::Xdp(vec![LinkXdp::Flags(0), LinkXdp::ProgId(7)]);
        assert_eq!(program_of(&xdp), Some(7));
        // The loopback interface may have some; the kernel answers all the same.
        assert!(Netlink::route().unwrap().classifiers().is_ok());
    }
}
