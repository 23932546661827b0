package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

//go:noinline
func scoreDocument(doc []byte, rounds int) uint64 {
	var h uint64 = 14695981039346656037
	for r := 0; r < rounds; r++ {
		for _, b := range doc {
			h ^= uint64(b)
			h *= 1099511628211
		}
	}
	return h
}

func serve(c net.Conn, rounds int) {
	defer c.Close()
	doc := make([]byte, 2048)
	var out [8]byte
	for {
		if _, err := io.ReadFull(c, doc); err != nil {
			return
		}
		binary.BigEndian.PutUint64(out[:], scoreDocument(doc, rounds))
		if _, err := c.Write(out[:]); err != nil {
			return
		}
	}
}

func main() {
	addr := os.Args[2]
	if os.Args[1] == "server" {
		rounds, _ := strconv.Atoi(os.Args[3])
		l, err := net.Listen("tcp", addr)
		if err != nil {
			panic(err)
		}
		fmt.Println("ready")
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, rounds)
		}
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(1200 * time.Millisecond)
	for i := 0; i < 4; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := net.Dial("tcp", addr)
			if err != nil {
				panic(err)
			}
			defer c.Close()
			doc := make([]byte, 2048)
			var in [8]byte
			for time.Now().Before(end) {
				c.Write(doc)
				if _, err := io.ReadFull(c, in[:]); err != nil {
					return
				}
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("rate=%.1f\n", float64(n.Load())/time.Since(start).Seconds())
}
