package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

type session struct {
	next *session
	name *string
	seen [2]int64
}

var cache []*session

func fill(n int) {
	for i := 0; i < n; i++ {
		s := fmt.Sprint("user", i)
		e := &session{name: &s}
		if i > 0 {
			e.next = cache[i-1]
		}
		cache = append(cache, e)
	}
}

type row struct {
	a, b *int
	t    string
}

func page(w http.ResponseWriter, r *http.Request) {
	rows := make([]*row, 0, 16)
	for i := 0; i < 1500; i++ {
		v := i * 1000
		rows = append(rows, &row{a: &v, b: &v, t: "x"})
	}
	fmt.Fprintf(w, "%d rows\n", len(rows))
}

func main() {
	addr := os.Args[2]
	if os.Args[1] == "server" {
		fill(400000)
		http.HandleFunc("/", page)
		http.ListenAndServe(addr, nil)
		return
	}
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	end := start.Add(1200 * time.Millisecond)
	t := &http.Transport{MaxIdleConnsPerHost: 4}
	cl := &http.Client{Transport: t}
	for i := 0; i < 2; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for time.Now().Before(end) {
				r, err := cl.Get("http://" + addr + "/")
				if err != nil {
					continue
				}
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
				n.Add(1)
			}
		}()
	}
	wg.Wait()
	fmt.Printf("rate=%.1f\n", float64(n.Load())/time.Since(start).Seconds())
}
