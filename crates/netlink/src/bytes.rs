//! Messages and attributes as bytes, by the library's types.

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};

/// Returns a request with this number as it is sent.
pub fn request<T: NetlinkSerializable>(
    sequence: u32,
    flags: u16,
    payload: NetlinkPayload<T>,
) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = sequence;
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Returns the messages of a datagram, each with its header; none from the first on that is cut
/// short.
pub fn messages(mut datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    std::iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(datagram).ok()?.length() as usize;
        let message = &datagram[..length];
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkBuffer::new(message))
    })
}

/// Appends one attribute.
pub fn attribute(to: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let attribute = DefaultNla::new(kind, value.to_vec());
    let at = to.len();
    to.resize(at + attribute.buffer_len(), 0);
    attribute.emit(&mut to[at..]);
}

/// Returns the values of the attributes of this kind.
pub fn all(attributes: &[u8], kind: u16) -> impl Iterator<Item = &[u8]> {
    let all = NlasIterator::new(attributes).map_while(Result::ok);
    all.filter(move |one| one.kind() == kind).map(|one| {
        let length = usize::from(one.length());
        &one.into_inner()[NLA_HEADER_SIZE..length]
    })
}

/// Returns the value of the first attribute of this kind.
pub fn find(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    all(attributes, kind).next()
}

/// Returns the text of a value, which a zero byte may end.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(value.len());
    millstream_foreign::shown(&value[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_again() {
        const NESTED: u16 = 0x8000;
        let mut body = Vec::new();
        attribute(&mut body, 7, b"abc");
        attribute(&mut body, 9 | NESTED, b"defgh");
        assert_eq!(find(&body, 7), Some(&b"abc"[..]));
        assert_eq!(find(&body, 9), Some(&b"defgh"[..]));
        assert_eq!(find(&body, 8), None);
        assert_eq!(find(&[3, 0, 1], 1), None);
    }

    #[test]
    fn a_message_that_is_cut_short_ends_the_datagram() {
        let none = || NetlinkPayload::<netlink_packet_route::RouteNetlinkMessage>::Noop;
        let mut two = [request(7, 0, none()), request(8, 0, none())].concat();
        let numbers = |bytes: &[u8]| {
            messages(bytes).map(|message| message.sequence_number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(&two), [7, 8]);
        two.pop();
        assert_eq!(numbers(&two), [7]);
        two[0] = 15;
        assert!(numbers(&two).is_empty(), "shorter than its header");
    }
}
