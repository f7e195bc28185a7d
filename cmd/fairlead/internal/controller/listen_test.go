package controller

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/cmd/fairlead/internal/cli"
)

// TestListenMistakes: unsafe and incomplete flags are usage errors.
func TestListenMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason string
		o      ServeOptions
		want   string
	}{
		{
			"tokens must not be sent in clear text",
			ServeOptions{Listen: ":0"},
			"bearer tokens would be sent in clear text",
		},
		{
			"without authentication only loopback is allowed",
			ServeOptions{Listen: ":0", NoAuth: true},
			"for loopback only, and --listen",
		},
		{
			"also on the second port",
			ServeOptions{Listen: "127.0.0.1:0", NoAuth: true, metricsListen: ":0"},
			"for loopback only, and --metrics-listen",
		},
		{
			"a port is needed",
			ServeOptions{Listen: "127.0.0.1:0", metricsListen: "nowhere"},
			"cannot use --metrics-listen",
		},
		{"a certificate needs its key", ServeOptions{Listen: "127.0.0.1:0", certFile: "x"}, "need each other"},
		{"a public URL has a host", ServeOptions{Listen: "127.0.0.1:0", publicURL: "example.com"}, "--public-url"},
	} {
		var usage *cli.UsageError
		if _, err := tc.o.listen(slog.New(slog.DiscardHandler)); !errors.As(err, &usage) ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %s", tc.reason, err, tc.want)
		}
	}
}

// TestListenNothing: without addresses, no port is open.
func TestListenNothing(t *testing.T) {
	t.Parallel()
	l, err := (&ServeOptions{}).listen(slog.New(slog.DiscardHandler))
	if err != nil || l.api != nil || l.metrics != nil {
		t.Errorf("%+v, %v", l, err)
	}
	l.close()
}
