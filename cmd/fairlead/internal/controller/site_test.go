package controller

import (
	"log/slog"
	"strings"
	"testing"
)

// TestServedAddress reads the address from the line that the text handler of Run's logger writes.
func TestServedAddress(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"127.0.0.1:8081", "[::1]:40000"} {
		var line strings.Builder
		slog.New(slog.NewTextHandler(&line, nil)).Info(servedMessage, "scheme", "http", "address", address)
		if got, ok := ServedAddress(line.String()); !ok || got != address {
			t.Errorf("%q, %t of %s", got, ok, line.String())
		}
	}
	if got, ok := ServedAddress(`level=INFO msg="serving metrics" metricsAddress=127.0.0.1:1`); ok {
		t.Errorf("%q of another line", got)
	}
}
