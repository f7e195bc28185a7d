package admission

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fairlead-io/fairlead/admission/internal/authority"
	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestAuthorities: the first replica creates the Secret, and others read it. An invalid or lost Secret is repaired, and
// the authorities in the configurations stay trusted.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	server, err := apiserver.New(apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	calls, err := call.New(call.Options{Config: server.Config()})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	var log bytes.Buffer
	written := 0
	s := &authorities{
		calls: calls, namespace: "prod", secret: "ca", name: "test", now: time.Now,
		lifetimes: authority.Lifetimes{
			Authority: 100 * time.Hour, Leaf: 9 * time.Hour, Overlap: 30 * time.Hour, Settle: time.Hour,
		},
		log: slog.New(slog.NewTextHandler(&log, nil)), written: func() { written++ },
	}
	keep := func(reason string, again bool, targets ...*target) authority.Set {
		t.Helper()
		set, got, err := s.keep(t.Context(), targets)
		if err != nil || got != again {
			t.Fatalf("%s: again is %v, %v", reason, got, err)
		}
		return set
	}
	keep("no Secret", true)
	set := keep("a Secret", false)
	if len(set) != 1 || written != 1 {
		t.Fatalf("%d authorities after %d writes", len(set), written)
	}
	secret, err := s.read(t.Context())
	if err != nil || secret.Type != corev1.SecretTypeOpaque || secret.Labels[label] != "test" {
		t.Fatalf("the Secret is %+v, %v", secret, err)
	}
	text, err := encoded(set.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	configuration := &target{entries: "webhooks", live: map[string]any{"webhooks": []any{
		map[string]any{"clientConfig": map[string]any{"caBundle": text}},
	}}}
	for name := range secret.Data {
		secret.Data[name] = []byte("garbage")
	}
	if err := s.write(t.Context(), secret, secret.Data); err != nil {
		t.Fatal(err)
	}
	keep("an invalid Secret", true, configuration)
	if !strings.Contains(log.String(), "was invalid and was repaired") {
		t.Errorf("the log says %s", &log)
	}
	repaired := keep("the repaired Secret", false)
	if len(repaired) != 2 || !strings.Contains(string(repaired.Bundle()), strings.TrimSpace(string(set.Bundle()))) {
		t.Errorf("%d authorities; the one of the configuration is not trusted", len(repaired))
	}
}
