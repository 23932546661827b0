// expectc URL: 2 workers POST 8 KiB with "Expect: 100-continue"; after 4 ms without an answer the body goes anyway (as curl after 1 s)
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	web := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: 4 * time.Millisecond, MaxIdleConnsPerHost: 2}}
	photo := bytes.Repeat([]byte("photo!! "), 1024)
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := 0; i < 2; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(start) < 1200*time.Millisecond {
				q, _ := http.NewRequest("POST", os.Args[1], bytes.NewReader(photo))
				q.Header.Set("Expect", "100-continue")
				a, err := web.Do(q)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				io.Copy(io.Discard, a.Body)
				a.Body.Close()
				n.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Printf("rate=%.1f\n", float64(n.Load())/time.Since(start).Seconds())
}
