// shop IP:PORT /PATH: HTTP; each page asks a sidecar over a UNIX socket (8 kept connections)
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	side := make(chan net.Conn, 8)
	for i := 0; i < 8; i++ {
		c, err := net.Dial("unix", os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		side <- c
	}
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c := <-side
		var b [8]byte
		c.Write([]byte("rank 42\n"))
		io.ReadFull(c, b[:])
		side <- c
		fmt.Fprintf(w, "rank %x\n", b)
	})
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		panic(err)
	}
	fmt.Println("ready")
	http.Serve(l, nil)
}
