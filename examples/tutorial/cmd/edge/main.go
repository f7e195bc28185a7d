// Command edge runs an edge in memory.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"example.com/sites/edge/edgetest"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9000", "`address` of the API")
	activation := flag.Duration("activation", 30*time.Second, "`time` until a route is active")
	delay := flag.Duration("delay", 8*time.Second, "`time` between a reservation and its answer")
	flag.Parse()
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	edge := edgetest.New(*activation, log)
	slow := func(w http.ResponseWriter, r *http.Request) {
		edge.ServeHTTP(w, r)
		if r.Method != http.MethodPost {
			return
		}
		select {
		case <-time.After(*delay): // the client gets the answer when this function returns
		case <-r.Context().Done():
		}
	}
	server := &http.Server{Addr: *listen, Handler: http.HandlerFunc(slow), ReadHeaderTimeout: 10 * time.Second}
	log.Info("the edge listens", "address", *listen)
	if err := server.ListenAndServe(); err != nil {
		fmt.Fprintln(os.Stderr, "edge:", err)
		os.Exit(1)
	}
}
