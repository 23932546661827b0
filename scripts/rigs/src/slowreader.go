package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	addr := os.Args[1]
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(1200 * time.Millisecond)
	go func() { // one subscriber that reads slowly
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.(*net.TCPConn).SetReadBuffer(16384)
		b := make([]byte, 8192)
		for {
			c.Write([]byte{'s'})
			for got := 0; got < 262144; {
				k, err := c.Read(b)
				if err != nil {
					return
				}
				got += k
				time.Sleep(2 * time.Millisecond)
			}
		}
	}()
	time.Sleep(20 * time.Millisecond)
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := net.Dial("tcp", addr)
			if err != nil {
				panic(err)
			}
			defer c.Close()
			b := make([]byte, 512)
			for time.Now().Before(end) {
				c.Write([]byte{'f'})
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("rate=%.1f\n", float64(n.Load())/time.Since(start).Seconds())
}
