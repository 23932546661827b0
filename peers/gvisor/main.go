// gVisor's netstack as a contender: over AF_PACKET with virtio-net headers and host GSO, over TAP, and in memory.
//
//	peer-gvisor send|receive|echo --link packet|tap --device NAME --peer A:P [--address A] [--mtu N]
//	peer-gvisor memory-bulk|memory-rr [--mtu N] [--seconds S]
//
// The words are those of every near end (docs/peers.md).
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// options is the command line after the role.
type options struct {
	role, link, device string
	address            netip.Addr
	peer               netip.AddrPort
	mtu                uint
	buffer, call       int
	seconds            float64
}

func parse() (options, error) {
	var o options
	if len(os.Args) < 2 {
		return o, errors.New("a role is missing")
	}
	o.role = os.Args[1]
	words := flag.NewFlagSet("peer-gvisor", flag.ContinueOnError)
	words.StringVar(&o.link, "link", "tap", "packet or tap")
	words.StringVar(&o.device, "device", "ms-tap", "interface")
	address := words.String("address", "10.70.0.1", "address of the near end")
	peer := words.String("peer", "10.70.0.2:5001", "where the far end listens")
	words.UintVar(&o.mtu, "mtu", 1500, "largest IP packet, bytes")
	words.IntVar(&o.buffer, "buffer", 1<<20, "send and receive buffer, bytes")
	words.IntVar(&o.call, "call", 128<<10, "bytes of a call")
	words.Float64Var(&o.seconds, "seconds", 30, "longest run; in memory the measured stretch")
	if err := words.Parse(os.Args[2:]); err != nil {
		return o, err
	}
	var err error
	if o.address, err = netip.ParseAddr(*address); err != nil {
		return o, err
	}
	o.peer, err = netip.ParseAddrPort(*peer)
	return o, err
}

func main() {
	o, err := parse()
	// Packets are pooled; what is left for the collector is small and short-lived.
	debug.SetGCPercent(400)
	if err == nil {
		switch o.role {
		case "send", "receive", "echo":
			err = near(o)
		case "memory-bulk", "memory-rr":
			err = inMemory(o)
		default:
			err = fmt.Errorf("no role %s", o.role)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// near connects and does what the role says until the far end closes.
func near(o options) error {
	s, err := host(o)
	if err != nil {
		return err
	}
	conn, err := gonet.DialTCP(s, full(o.peer), ipv4.ProtocolNumber)
	if err != nil {
		return err
	}
	limit := time.Now().Add(time.Duration(o.seconds * float64(time.Second)))
	if err := conn.SetDeadline(limit); err != nil {
		return err
	}
	data := make([]byte, o.call)
	switch o.role {
	case "send":
		for err == nil {
			_, err = conn.Write(data)
		}
	case "receive":
		for err == nil {
			_, err = conn.Read(data)
		}
	default:
		for err == nil {
			if _, err = io.ReadFull(conn, data[:1]); err == nil {
				_, err = conn.Write(data[:1])
			}
		}
	}
	fmt.Printf("{\"version\":%q,\"buffer\":%d}\n", version(), o.buffer)
	return nil
}

func full(address netip.AddrPort) tcpip.FullAddress {
	return tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(address.Addr().As4()), Port: address.Port()}
}

// version is the module's, as go.mod pins it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "gvisor.dev/gvisor" {
				return module.Path + " " + module.Version
			}
		}
	}
	return "gvisor.dev/gvisor"
}
