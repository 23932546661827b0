// webc URL WORKERS: keep-alive GETs for 1.2 s; the body is read and thrown away (no decompression)
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	k, _ := strconv.Atoi(os.Args[2])
	web := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: k}}
	var n atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := 0; i < k; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(start) < 1200*time.Millisecond {
				q, _ := http.NewRequest("GET", os.Args[1], nil)
				q.Header.Set("Accept-Encoding", "gzip")
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
