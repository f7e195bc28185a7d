package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
	"github.com/fairlead-io/fairlead/flow"
)

func TestFlows(t *testing.T) {
	t.Parallel()
	engine := flow.NewEngine(flow.EngineOptions{})
	defer func() {
		if err := engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	parked := make(chan struct{})
	var never flow.Signal
	waits := flow.New("bring-up",
		flow.Step("prepare", func(_ context.Context, f *flow.Fiber[int]) flow.Next { return f.Next() }),
		flow.Step("wait-ready", func(_ context.Context, f *flow.Fiber[int]) flow.Next {
			close(parked)
			return f.Await(&never)
		}),
	)
	if _, err := waits.Start(t.Context(), engine, new(int), flow.StartOptions{Key: "prod/orders"}); err != nil {
		t.Fatal(err)
	}
	<-parked
	page := httptest.NewServer(engine.DebugHandler())
	defer page.Close()
	wrong := httptest.NewServer(http.NotFoundHandler())
	defer wrong.Close()
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}))
	defer failing.Close()

	tests := map[string]struct {
		reason string
		args   []string
		code   int
		out    []string
		err    string
	}{
		"Table": {
			"A parked fiber is shown with its step and trail.",
			[]string{"--url", page.URL},
			0,
			[]string{"KEY", "  FOR  NEXT CHECK  ", "prod/orders", "bring-up/wait-ready", "prepare"},
			"",
		},
		"JSON": {
			"The same for programs.",
			[]string{"--url", page.URL, "-o", "json"},
			0,
			[]string{`"path": "bring-up/wait-ready"`},
			"",
		},
		"None": {
			"A filter without matches is reported.",
			[]string{"--url", page.URL, "--key", "other"},
			0,
			[]string{"no fibers"},
			"",
		},
		"Missing": {
			"A program without the page is told how to get it.",
			[]string{"--url", wrong.URL},
			cli.ExitFailure, nil,
			"fairlead controller has them at --metrics-listen if that is set; a program of your own needs fairlead.WithListen",
		},
		"Failing": {
			"The answer of a server that fails is shown.",
			[]string{"--url", failing.URL},
			cli.ExitFailure, nil,
			"answers 503 Service Unavailable: not now",
		},
		"Format": {
			"A bad format is the caller's mistake.",
			[]string{"-o", "xml"},
			cli.ExitUsage, nil,
			"unknown output format",
		},
		"Limit": {
			"So is a limit below zero.",
			[]string{"--url", page.URL, "--limit", "-1"},
			cli.ExitUsage, nil,
			"--limit must not be negative",
		},
		"Longer": {
			"And a time.",
			[]string{"--url", page.URL, "--longer=-5m"},
			cli.ExitUsage, nil,
			"--longer must not be negative",
		},
		"Wrong": {
			"Another server is reported with its answer.",
			[]string{"--url", wrong.URL},
			cli.ExitFailure, nil,
			"404",
		},
		"Nobody": {
			"So is one that does not answer.",
			[]string{"--url", "http://127.0.0.1:1/debug/flows"},
			cli.ExitFailure, nil,
			"is the program running there?",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := run(t.Context(), append([]string{"flows"}, tc.args...), strings.NewReader(""), &out, &errs)
			if code != tc.code || !strings.Contains(errs.String(), tc.err) {
				t.Errorf("%s\nexit code %d, want %d; stderr: %s", tc.reason, code, tc.code, errs.String())
			}
			for _, want := range tc.out {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s\n%q is not in:\n%s", tc.reason, want, out.String())
				}
			}
		})
	}
}
