package main

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

// The only interface of a stack.
const nic = 1

// Largest super-segment, with its headers.
const gsoBytes = 65536

// host makes the stack over the link of o.
func host(o options) (*stack.Stack, error) {
	var link stack.LinkEndpoint
	var err error
	switch o.link {
	case "packet":
		link, err = packetLink(o)
	case "tap":
		link, err = tapLink(o)
	default:
		err = fmt.Errorf("no link %s", o.link)
	}
	if err != nil {
		return nil, err
	}
	return newStack(link, tcpip.AddrFrom4(o.address.As4()), o.buffer)
}

// newStack makes a stack with one interface, one address in a /24, SACK, and buffers of the given size.
func newStack(link stack.LinkEndpoint, address tcpip.Address, buffer int) (*stack.Stack, error) {
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: buffer, Max: 2 * buffer}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: buffer, Max: 2 * buffer}
	for _, option := range []tcpip.SettableTransportProtocolOption{&sack, &send, &receive} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, fmt.Errorf("set %T: %s", option, err)
		}
	}
	if err := s.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("interface: %s", err)
	}
	prefixed := tcpip.AddressWithPrefix{Address: address, PrefixLen: 24}
	protocol := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: prefixed}
	if err := s.AddProtocolAddress(nic, protocol, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("address: %s", err)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return s, nil
}

// packetLink is a packet socket that exchanges super-segments and unsummed checksums with the kernel by
// virtio-net headers, read in batches.
func packetLink(o options) (stack.LinkEndpoint, error) {
	device, err := net.InterfaceByName(o.device)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return nil, fmt.Errorf("virtio-net headers: %w", err)
	}
	for _, option := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		// An ordinary user stays with the system's limit.
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 16<<20)
	}
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: device.Index}); err != nil {
		return nil, err
	}
	return fdbased.New(&fdbased.Options{
		FDs:                []int{fd},
		MTU:                uint32(o.mtu),
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(device.HardwareAddr),
		GSOMaxSize:         gsoBytes,
		PacketDispatchMode: fdbased.RecvMMsg,
		// Segments leave with a partial checksum because of GSO; TXChecksumOffload would leave it out of
		// handshakes too, which carry no GSO state.
		RXChecksumOffload: true,
	})
}

// tapLink is a TAP device as fdbased takes it: frame by frame, checksums in software, received segments
// merged by its GRO.
func tapLink(o options) (stack.LinkEndpoint, error) {
	fd, err := tun.OpenTAP(o.device)
	if err != nil {
		return nil, err
	}
	return fdbased.New(&fdbased.Options{
		FDs:            []int{fd},
		MTU:            uint32(o.mtu),
		EthernetHeader: true,
		Address:        tcpip.LinkAddress("\x02\x6d\x73\x00\x00\x01"),
		GRO:            true,
	})
}
