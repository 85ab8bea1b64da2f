// The HTTP rows in Go: net/http with the same replies as ../http/server.cc. Built by `go build`.
//
// The options and output are those of http/server.cc. HTTP/2 is off: the rows are about HTTP/1.1.
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "go_http:", err)
		os.Exit(1)
	}
}

func main() {
	options := map[string]string{"port": "0", "delay-ms": "0", "size": "0", "cert": "", "key": ""}
	for _, argument := range os.Args[1:] {
		key, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		options[key] = value
	}
	number := func(key string) int {
		value, err := strconv.Atoi(options[key])
		fail(err)
		return value
	}
	delay := time.Duration(number("delay-ms")) * time.Millisecond
	body := []byte("hello, world")
	if size := number("size"); size > 0 {
		body = bytes.Repeat([]byte("x"), size)
	}
	length := strconv.Itoa(len(body))
	server := &http.Server{
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/delay" {
				time.Sleep(delay)
			}
			w.Header().Set("Content-Type", "text/plain")
			w.Header().Set("Content-Length", length)
			w.Write(body)
		}),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+options["port"])
	fail(err)
	fmt.Printf("port=%d\n", listener.Addr().(*net.TCPAddr).Port)
	if options["cert"] == "" {
		fail(server.Serve(listener))
	}
	fail(server.ServeTLS(listener, options["cert"], options["key"]))
}
