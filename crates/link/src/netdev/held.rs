//! A device that keeps what is sent, for tests: a MACVLAN on another, and a queue there that lets
//! hardly anything go.

use millstream_netlink::core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use millstream_netlink::packet::RouteNetlinkMessage;
use millstream_netlink::packet::link::{InfoKind, LinkAttribute, LinkInfo};
use millstream_netlink::packet::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use super::{add, change, index};
use crate::LinkError;

/// Makes the MACVLAN `name` on interface `lower`, down.
pub(crate) fn add_macvlan(name: &str, lower: &str) -> Result<(), LinkError> {
    let attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::Link(index(lower)?),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::MacVlan)]),
    ];
    let what = |error| LinkError::from_io(format!("make {name} on {lower}"), error);
    add(attributes).map_err(what)
}

/// Has interface `name` keep what is sent (a token bucket of a byte a second), or drops what it
/// keeps.
pub(crate) fn hold(name: &str, on: bool) -> Result<(), LinkError> {
    const BUCKET: u16 = 1;
    const BURST: u16 = 6;
    let what = || format!("hold what {name} sends");
    let mut message = TcMessage::with_index(index(name)?.cast_signed());
    message.header.parent = TcHandle::ROOT;
    if !on {
        return change(RouteNetlinkMessage::DelQueueDiscipline(message), 0, what);
    }
    // struct tc_tbf_qopt: two rates of 12 bytes, each ending in bytes per second; limit, buffer,
    // mtu.
    let mut bucket = [0; 36];
    bucket[8..12].copy_from_slice(&1_u32.to_ne_bytes());
    bucket[24..28].copy_from_slice(&(64_u32 << 20).to_ne_bytes());
    let option = |kind, value: &[u8]| TcOption::Other(DefaultNla::new(kind, value.to_vec()));
    message.attributes = vec![
        TcAttribute::Kind("tbf".to_owned()),
        TcAttribute::Options(vec![option(BUCKET, &bucket), option(BURST, &2000_u32.to_ne_bytes())]),
    ];
    let message = RouteNetlinkMessage::NewQueueDiscipline(message);
    change(message, NLM_F_CREATE | NLM_F_REPLACE, what)
}
