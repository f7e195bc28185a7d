package up

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/controller"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// fakeController serves /readyz, logs its address as a controller does, and ends at SIGTERM. POST /crash ends it with
// an error.
func fakeController(args []string) int {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	l, err := net.Listen("tcp", args[slices.Index(args, "--listen")+1])
	if err != nil {
		log.Error("cannot listen", "error", err)
		return 1
	}
	crash := make(chan struct{}, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/crash", func(http.ResponseWriter, *http.Request) { crash <- struct{}{} })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }() // ends with the process
	log.Info("HTTP API is served", "scheme", "http", "address", l.Addr().String())
	select {
	case <-stop:
		return 0
	case <-crash:
		return 3
	}
}

// TestReplicas runs two controllers. A crashed one is restarted at its address, and all end with the context.
func TestReplicas(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	output, out := io.Pipe()
	r, err := newReplicas(out, dir, filepath.Join(dir, "kubeconfig"), controller.Options{
		Serve: controller.ServeOptions{Listen: "127.0.0.1:0"}, Drain: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), testlimit.Wait)
	defer stop()
	ready := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- r.run(ctx, 2, func() { close(ready) })
		_ = out.Close() // a pipe does not fail
	}()
	lines := bufio.NewScanner(output)
	await := func(pattern string) []string {
		t.Helper()
		want := regexp.MustCompile(pattern)
		for lines.Scan() {
			if found := want.FindStringSubmatch(lines.Text()); found != nil {
				return found
			}
		}
		t.Fatalf("no line matches %s", pattern)
		return nil
	}
	const console = `console of controller (\d) at http://(\S+)/console/`
	address := map[string]string{}
	for range 2 {
		found := await(console)
		address[found[1]] = found[2]
	}
	<-ready
	if address["1"] == "" || address["2"] == "" || address["1"] == address["2"] {
		t.Errorf("addresses %v", address)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address["1"]+"/crash", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if answer, err := client.Do(request); err == nil { // the process may end before it answers
		answer.Body.Close()
	}
	await(`operations controller 1 ended: exit status 3; restarting it`)
	if found := await(console); found[1] != "1" || found[2] != address["1"] {
		t.Errorf("%v was started again, want controller 1 at %s", found[1:], address["1"])
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, output) }() // ends with the pipe
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, name := range []string{"controller-1.log", "controller-2.log"} {
		if log, err := os.ReadFile(filepath.Join(dir, name)); err != nil ||
			!strings.Contains(string(log), "HTTP API is served") {
			t.Errorf("%s: %q, %v", name, log, err)
		}
	}
}

// TestReplicaNeverReady: a controller that ends before it is ready ends all, with the path of its log.
func TestReplicaNeverReady(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := newReplicas(io.Discard, dir, filepath.Join(dir, "kubeconfig"), controller.Options{
		Serve: controller.ServeOptions{Listen: "nowhere"},
	})
	if err != nil {
		t.Fatal(err)
	}
	called := false
	err = r.run(t.Context(), 1, func() { called = true })
	if called || err == nil ||
		!strings.Contains(err.Error(), "operations controller 1 ended: exit status 1 (see "+dir) {
		t.Errorf("ready %t, %v", called, err)
	}
}
