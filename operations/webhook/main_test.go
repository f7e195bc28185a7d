package webhook_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// secrets is a Resolver over a map of namespace/name.
type secrets struct {
	mu     sync.Mutex
	values map[string]map[string][]byte
	token  func(webhook.TokenRequest) (string, error)
}

func newSecrets() *secrets { return &secrets{values: map[string]map[string][]byte{}} }

func (s *secrets) set(name string, values map[string]string) *secrets {
	s.mu.Lock()
	defer s.mu.Unlock()
	bytes := map[string][]byte{}
	for key, value := range values {
		bytes[key] = []byte(value)
	}
	s.values["ns/"+name] = bytes
	return s
}

func (s *secrets) Secret(_ context.Context, namespace, name string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	values, ok := s.values[namespace+"/"+name]
	if !ok {
		return nil, fmt.Errorf("secret %s/%s not found", namespace, name)
	}
	return maps.Clone(values), nil
}

func (s *secrets) ServiceAccountToken(_ context.Context, r webhook.TokenRequest) (string, error) {
	if s.token == nil {
		return "", fmt.Errorf("no service accounts here")
	}
	return s.token(r)
}

func newClient(t *testing.T, o webhook.Options) *webhook.Client {
	t.Helper()
	if o.AllowTargets == nil {
		o.AllowTargets = []string{"127.0.0.0/8", "::1"}
	}
	c, err := webhook.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func compile(t *testing.T, d webhook.Definition) *webhook.Compiled {
	t.Helper()
	if d.Namespace == "" {
		d.Namespace, d.Name = "ns", t.Name()
	}
	w, err := webhook.Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func newServer(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func permit(t *testing.T, c *webhook.Client, w *webhook.Compiled) *webhook.Permit {
	t.Helper()
	p, wait := c.Acquire(w, "id", nil)
	if p == nil {
		t.Fatalf("no permit: %+v", wait)
	}
	return p
}

func aCall() webhook.Call {
	return webhook.Call{
		ID: webhook.CallID("ns", "op-1", "cleanup", webhook.Main), CorrelationID: "corr-1",
		Data: webhook.Data{
			Resource: map[string]any{
				"id": "app-1", "name": `quote " and \ slash`, "count": 3.0, "none": nil,
				"tags": []any{"a", "b"},
			},
			TenantID:  "tenant-1",
			Headers:   map[string]string{"X-Request-Id": "r-1"},
			Operation: func() webhook.Fields { return webhook.Fields{"resourceID": "app-1", "operationType": "Delete"} },
		},
	}
}

func ptr(s string) *string { return &s }

// soon bounds an immediate event, with time to spare for a busy machine.
const soon = 30 * time.Second
