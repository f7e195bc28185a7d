package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	testprogram "github.com/fairlead-io/fairlead/internal/testbed/program"
)

// hanging starts a server that never answers. arrived receives a value for each request.
func hanging(t *testing.T) (url string, arrived chan struct{}) {
	t.Helper()
	arrived = make(chan struct{}, 100)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice the end of the connection
		arrived <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL, arrived
}

// interruption is the cause of a cancellation by a signal.
type interruption struct{}

func (interruption) Error() string        { return "interrupted" }
func (interruption) Is(target error) bool { return target == context.Canceled }

// TestInterrupted interrupts commands while a server does not answer. Each ends at once, and reports no failure of the
// server.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		code int
		said string
	}{
		{[]string{"watch", "pods"}, cli.ExitOK, ""},
		{[]string{"watch", "pods.v1.", "-o", "json"}, cli.ExitOK, ""},
		{[]string{"controller", "--listen", "127.0.0.1:0"}, cli.ExitOK, ""},
		{[]string{"flows"}, cli.ExitFailure, "fairlead flows: cannot read flows: interrupted\n"},
		{[]string{"flows", "--watch"}, cli.ExitOK, ""},
		{[]string{"op", "list"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "get", "A/b"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "describe", "A/b"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "wait", "A/b"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "cancel", "A/b"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "retry", "A/b"}, cli.ExitFailure, "interrupted\n"},
		{[]string{"op", "schedule", "A/b", "--type", "Create", "--wait"}, cli.ExitFailure, "interrupted\n"},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			t.Parallel()
			url, arrived := hanging(t)
			args := append(tc.args, "--kubeconfig", testprogram.Kubeconfig(t, &rest.Config{Host: url}, ""))
			if tc.args[0] == "flows" {
				args = append(tc.args, "--url", url+"/debug/flows")
			}
			ctx, interrupt := context.WithCancelCause(t.Context())
			var out, errs bytes.Buffer
			code := make(chan int)
			go func() { code <- run(ctx, args, nil, &out, &errs) }()
			<-arrived
			interrupt(interruption{})
			begin := time.Now()
			got := <-code
			if took := time.Since(begin); took > 20*time.Second { // a request may take 30 s
				t.Errorf("it took %v to end", took)
			}
			if got != tc.code || !strings.HasSuffix(errs.String(), tc.said) ||
				strings.Contains(errs.String(), "answer") ||
				strings.Contains(errs.String(), "there?") {
				t.Errorf("exit code %d, stderr %q", got, errs.String())
			}
		})
	}
}

// TestWaitTimeout: the timeout of a wait counts from its start, not from the first answer.
func TestWaitTimeout(t *testing.T) {
	t.Parallel()
	url, _ := hanging(t)
	config := testprogram.Kubeconfig(t, &rest.Config{Host: url}, "")
	var out, errs bytes.Buffer
	begin := time.Now()
	code := run(t.Context(), []string{"op", "wait", "A/b", "--timeout", "100ms", "--kubeconfig", config}, nil, &out,
		&errs)
	if code != cli.ExitFailure || !strings.Contains(errs.String(), "it has not ended after 100ms") ||
		time.Since(begin) > 20*time.Second {
		t.Errorf("exit code %d after %v, stderr %q", code, time.Since(begin), errs.String())
	}
	errs.Reset()
	if code := run(t.Context(), []string{"op", "wait", "A/b", "--timeout=-1s", "--kubeconfig", config}, nil, &out,
		&errs); code != cli.ExitUsage {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}

// If a server fails while a name is resolved, the error is not that the resource does not exist.
func TestLookUpFails(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/version" {
			http.Error(w, "overloaded", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"gitVersion":"v1.36.0"}`))
	}))
	defer s.Close()
	path := filepath.Join(t.TempDir(), "none")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"watch", "pods", "--server", s.URL, "--kubeconfig", path}, nil, &out, &errs)
	if code != cli.ExitFailure || !strings.Contains(errs.String(), `cannot look up "pods"`) {
		t.Errorf("exit code %d, stderr %q", code, errs.String())
	}
}
