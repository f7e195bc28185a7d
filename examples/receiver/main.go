// Receiver plays a line-of-business application. Its webhooks clean up, and it counts the effects.
//
//	receiver --listen 127.0.0.1:8090 --fail 2
//
// Its endpoints are:
//
//	POST /cleanup     performs the effect once per Idempotency-Key and answers 200
//	POST /slow        accepts the work and answers 202 with the Location of a job to poll
//	GET  /jobs/{key}  answers {"status":"IN_PROGRESS"}, then {"status":"SUCCEEDED"}
//	GET  /effects     returns for each key: correlation id, calls and effects
//
// These endpoints misbehave:
//
//	POST /fail        always answers 500
//	POST /gone        always answers 410
//	POST /busy        always answers 429 with a Retry-After of a minute
//	POST /never       accepts the work and answers 202 with the Location of a job that never ends
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8090", "address to listen on")
	fail := flag.Int("fail", 0, "answer 503 to the first `N` calls of every idempotency key")
	polls := flag.Int("polls", 2, "answer IN_PROGRESS to the first `N` polls of a job of /slow")
	flag.Parse()
	if err := run(*listen, *fail, *polls); err != nil {
		fmt.Fprintln(os.Stderr, "receiver:", err)
		os.Exit(1)
	}
}

func run(listen string, fail, polls int) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("cannot listen: %w (choose another address with --listen)", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	server := &http.Server{Handler: newLedger(fail, polls, log).handler(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() {
		deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		_ = server.Shutdown(deadline) // the exit closes connections that are open after the deadline
	})
	log.InfoContext(ctx, "line-of-business receiver is listening", "address", listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve: %w", err)
	}
	return nil
}
