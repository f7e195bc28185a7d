package inherit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/internal/inherit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func logger(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

func TestInherited(t *testing.T) {
	t.Parallel()
	var host, other bytes.Buffer
	log, slot := inherit.Logger(nil)
	derived := log.With("a", 1).WithGroup("g").With("b", 2)
	derived.Error("before")
	slot.From(t.Context())
	slot.From(inherit.With(t.Context(), logger(&host)))
	slot.Take(logger(&other))
	derived.Info("after", "c", 3)
	derived.Debug("below the level of the host")
	if got := host.String(); !strings.Contains(got, "msg=after a=1 g.b=2 g.c=3") || strings.Contains(got, "before") ||
		strings.Contains(got, "below") {
		t.Errorf("the host has %q", got)
	}
	if other.Len() > 0 {
		t.Errorf("the second host has %q", other.String())
	}
}

func TestOwnBeatsInherited(t *testing.T) {
	t.Parallel()
	var own, host bytes.Buffer
	log, slot := inherit.Logger(logger(&own))
	slot.Take(logger(&host))
	log.Info("here")
	if !strings.Contains(own.String(), "msg=here") || host.Len() > 0 {
		t.Errorf("own has %q, the host %q", own.String(), host.String())
	}
}
