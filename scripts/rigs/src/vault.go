// vault server IP:PORT CERT KEY | client IP:PORT: TLS, 4 kept connections, 64 bytes there and back
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	if os.Args[1] == "server" {
		pair, err := tls.LoadX509KeyPair(os.Args[3], os.Args[4])
		fail(err)
		l, err := tls.Listen("tcp", os.Args[2], &tls.Config{Certificates: []tls.Certificate{pair}})
		fail(err)
		fmt.Println("ready")
		for {
			c, err := l.Accept()
			fail(err)
			go func() {
				b := make([]byte, 64)
				for {
					if _, err := io.ReadFull(c, b); err != nil {
						return
					}
					c.Write(b)
				}
			}()
		}
	}
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := 0; i < 4; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			c, err := tls.Dial("tcp", os.Args[2], &tls.Config{InsecureSkipVerify: true})
			fail(err)
			b := make([]byte, 64)
			for time.Since(start) < 1200*time.Millisecond {
				c.Write(b)
				_, err := io.ReadFull(c, b)
				fail(err)
				n.Add(1)
			}
			c.Close()
		}()
	}
	all.Wait()
	fmt.Printf("rate=%.1f\n", float64(n.Load())/time.Since(start).Seconds())
}
