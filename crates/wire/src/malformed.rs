//! The ways in which received bytes can be wrong.

millstream_packet::reasons! {
    /// Why bytes were refused: one reason for each way of being wrong, so that
    /// the stack can count drops by reason in an array of [`Malformed::COUNT`].
    #[non_exhaustive]
    pub enum Malformed {
        /// The packet is long enough, but its contiguous head does not hold the
        /// headers: the caller may pull up more and ask again.
        Truncated = "truncated",
        /// The bytes end before the Ethernet header.
        EthernetTruncated = "ethernet_truncated",
        /// The bytes end inside an 802.1Q tag.
        VlanTruncated = "vlan_truncated",
        /// The Ethernet type field is a length (IEEE 802.3), not a type.
        EthernetLength = "ethernet_length",
        /// The source address of a frame is a group address.
        EthernetSource = "ethernet_source",
        /// The bytes end before the ARP packet.
        ArpTruncated = "arp_truncated",
        /// ARP for something other than Ethernet and IPv4, or of other address lengths.
        ArpFormat = "arp_format",
        /// An ARP operation other than request and reply.
        ArpOperation = "arp_operation",
        /// An ARP sender with a group, zero or broadcast address.
        ArpSender = "arp_sender",
        /// Neither IPv4 nor IPv6.
        IpVersion = "ip_version",
        /// The bytes end before the IP header.
        IpTruncated = "ip_truncated",
        /// The IP length field says more than what arrived, or less than the header.
        IpLength = "ip_length",
        /// A source address that cannot be one: multicast or broadcast.
        IpSource = "ip_source",
        /// An IPv4 header length under 20.
        Ipv4HeaderLength = "ipv4_header_length",
        /// The IPv4 header checksum does not verify.
        Ipv4Checksum = "ipv4_checksum",
        /// An IPv4 option whose length is wrong.
        Ipv4Option = "ipv4_option",
        /// A packet with an IPv4 source route.
        Ipv4SourceRoute = "ipv4_source_route",
        /// A fragment that would end beyond the largest packet, is not the last
        /// and not a multiple of eight bytes long, or is empty.
        IpFragment = "ip_fragment",
        /// The bytes end inside an IPv6 extension header.
        Ipv6ExtensionTruncated = "ipv6_extension_truncated",
        /// More IPv6 extension headers or bytes of them than the limit.
        Ipv6ExtensionLimit = "ipv6_extension_limit",
        /// A hop-by-hop header that is not the first.
        Ipv6ExtensionOrder = "ipv6_extension_order",
        /// An IPv6 option that runs out of its header.
        Ipv6OptionLength = "ipv6_option_length",
        /// An unknown IPv6 option that asks to be discarded.
        Ipv6OptionUnknown = "ipv6_option_unknown",
        /// More IPv6 options than the limit.
        Ipv6OptionLimit = "ipv6_option_limit",
        /// A routing header with segments left.
        Ipv6Routing = "ipv6_routing",
        /// A jumbogram (RFC 2675), or a zero payload length that is none.
        Ipv6Jumbogram = "ipv6_jumbogram",
        /// The bytes end before the UDP header.
        UdpTruncated = "udp_truncated",
        /// The UDP length is under 8 or over what arrived.
        UdpLength = "udp_length",
        /// The UDP checksum does not verify, or is absent over IPv6.
        UdpChecksum = "udp_checksum",
        /// UDP to port 0.
        UdpPort = "udp_port",
        /// The bytes end before the TCP header.
        TcpTruncated = "tcp_truncated",
        /// The TCP data offset is under 20 bytes or over what arrived.
        TcpHeaderLength = "tcp_header_length",
        /// A TCP option whose length is wrong.
        TcpOption = "tcp_option",
        /// The TCP checksum does not verify.
        TcpChecksum = "tcp_checksum",
        /// TCP from or to port 0.
        TcpPort = "tcp_port",
        /// The bytes end before the ICMP message.
        IcmpTruncated = "icmp_truncated",
        /// The ICMP checksum does not verify.
        IcmpChecksum = "icmp_checksum",
        /// An ICMP error whose quoted packet cannot be read.
        IcmpQuote = "icmp_quote",
        /// The bytes end before the neighbour discovery message.
        NdpTruncated = "ndp_truncated",
        /// A neighbour discovery message that came over a router (hop limit not 255).
        NdpHopLimit = "ndp_hop_limit",
        /// A neighbour discovery message with a code other than 0.
        NdpCode = "ndp_code",
        /// A neighbour discovery message whose addresses cannot belong together.
        NdpAddress = "ndp_address",
        /// A neighbour discovery option of length 0, cut off, or of a wrong length.
        NdpOption = "ndp_option",
        /// More neighbour discovery options than the limit.
        NdpOptionLimit = "ndp_option_limit",
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn index_counts_up_and_names_differ() {
        let mut names = std::collections::HashSet::new();
        for (i, reason) in Malformed::ALL.iter().enumerate() {
            assert_eq!(reason.index(), i);
            assert!(names.insert(reason.name()));
        }
        assert_eq!(names.len(), Malformed::COUNT);
    }
}
