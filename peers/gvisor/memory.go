package main

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/pipe"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
)

// inMemory joins two stacks by gVisor's own pipe and measures by the process's processor time. The
// orchestrator binds the process to one CPU.
func inMemory(o options) error {
	client, server, err := connected(o)
	if err != nil {
		return err
	}
	var count atomic.Int64
	unit := "bytes"
	if o.role == "memory-bulk" {
		go pump(client, o.call)
		go drain(server, o.call, &count)
	} else {
		unit = "transactions"
		go io.Copy(server, server)
		go transact(client, &count)
	}
	sleep(o.seconds * 0.2)
	before, begin, cpu := count.Load(), time.Now(), processSeconds()
	sleep(o.seconds)
	done, seconds, cpu := count.Load()-before, time.Since(begin).Seconds(), processSeconds()-cpu
	fmt.Printf("{\"version\":%q,\"%s\":%d,\"seconds\":%.6f,\"cpu_s\":%.6f}\n", version(), unit, done, seconds, cpu)
	return nil
}

// connected makes two stacks with one open connection.
func connected(o options) (client, server io.ReadWriter, err error) {
	left, right := pipe.New("\x02\x6d\x73\x00\x00\x01", "\x02\x6d\x73\x00\x00\x02", uint32(o.mtu))
	near, err := newStack(left, tcpip.AddrFrom4([4]byte{10, 0, 0, 1}), o.buffer)
	if err != nil {
		return nil, nil, err
	}
	far, err := newStack(right, tcpip.AddrFrom4([4]byte{10, 0, 0, 2}), o.buffer)
	if err != nil {
		return nil, nil, err
	}
	to := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4([4]byte{10, 0, 0, 2}), Port: 9}
	listener, err := gonet.ListenTCP(far, to, ipv4.ProtocolNumber)
	if err != nil {
		return nil, nil, err
	}
	type accepted struct {
		conn io.ReadWriter
		err  error
	}
	answer := make(chan accepted, 1)
	go func() {
		conn, err := listener.Accept()
		answer <- accepted{conn, err}
	}()
	dialled, err := gonet.DialTCP(near, to, ipv4.ProtocolNumber)
	if err != nil {
		return nil, nil, err
	}
	got := <-answer
	return dialled, got.conn, got.err
}

func pump(to io.Writer, call int) {
	data := make([]byte, call)
	for err := error(nil); err == nil; {
		_, err = to.Write(data)
	}
}

func drain(from io.Reader, call int, count *atomic.Int64) {
	data := make([]byte, call)
	for err := error(nil); err == nil; {
		var n int
		n, err = from.Read(data)
		count.Add(int64(n))
	}
}

func transact(conn io.ReadWriter, count *atomic.Int64) {
	var data [1]byte
	for err := error(nil); err == nil; count.Add(1) {
		if _, err = conn.Write(data[:]); err == nil {
			_, err = io.ReadFull(conn, data[:])
		}
	}
}

func sleep(seconds float64) {
	time.Sleep(time.Duration(seconds * float64(time.Second)))
}

// processSeconds is the processor time of this process.
func processSeconds() float64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		panic(errors.Join(errors.New("no process clock"), err))
	}
	return float64(now.Sec) + float64(now.Nsec)*1e-9
}
