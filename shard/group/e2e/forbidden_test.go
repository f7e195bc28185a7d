package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/disturb"
	"github.com/fairlead-io/fairlead/shard/group"
	"github.com/fairlead-io/fairlead/why"
)

// logs are the lines of a logger.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestForbidden: a member without the right to Leases tells the rule that is missing, once, however often it tries.
func TestForbidden(t *testing.T) {
	t.Parallel()
	cfg := rest.CopyConfig(env.Config(t))
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:operators:stranger"}
	var refused atomic.Int32
	enough := make(chan struct{})
	cfg = disturb.Config(cfg, func(q *http.Request, next http.RoundTripper) (*http.Response, error) {
		answer, err := next.RoundTrip(q)
		if err == nil && answer.StatusCode == http.StatusForbidden && refused.Add(1) == 12 {
			close(enough)
		}
		return answer, err
	})
	said := &logs{}
	namespace := env.Namespace(t)
	g, err := group.New(cfg, group.Options{
		Namespace: namespace, Name: "gateways", Role: "test", Drain: time.Second,
		Logger: slog.New(slog.NewTextHandler(said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-enough
	const rule = `{apiGroups: ["coordination.k8s.io"], resources: ["leases"], ` +
		`verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]}`
	if err := g.Status().Err; !errors.Is(err, group.ErrForbidden) || !strings.Contains(err.Error(), rule) ||
		!strings.Contains(err.Error(), "in namespace "+namespace) || !strings.Contains(err.Error(), "operators:stranger") {
		t.Errorf("its status: %v", err)
	}
	told := g.Why("web", "")
	if len(told) != 1 || told[0].Type != why.Forbidden || told[0].Evidence["rule"] != rule ||
		told[0].Evidence["namespace"] != namespace {
		t.Errorf("why says %+v", told)
	}
	if n := strings.Count(said.String(), "no permission for Leases"); n != 1 {
		t.Errorf("it is told %d times: %s", n, said)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
}
