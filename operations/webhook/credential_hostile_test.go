package webhook_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestManySigningKeys: too many signing keys are refused, since each signs the whole body and is masked in answers.
func TestManySigningKeys(t *testing.T) {
	t.Parallel()
	asked := 0
	server := newServer(t, func(http.ResponseWriter, *http.Request) { asked++ })
	for _, tc := range []struct {
		n    int
		want webhook.Verdict
	}{{8, webhook.Succeeded}, {9, webhook.Retry}} {
		values := map[string]string{}
		for i := range tc.n {
			values[fmt.Sprint("k", i)] = "whsec_" + base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%024d", i))
		}
		c := newClient(t, webhook.Options{Resolver: newSecrets().set("keys", values)})
		w := compile(t, webhook.Definition{Request: webhook.Request{URL: server.URL}, SigningSecret: "keys"})
		if got := permit(t, c, w).Call(t.Context(), aCall()); got.Verdict != tc.want {
			t.Errorf("%d keys: %v %q", tc.n, got.Verdict, got.Message)
		}
	}
	if asked != 1 {
		t.Errorf("%d requests", asked)
	}
}

// TestMaskDoesNotGrow masks secrets that are parts of the replacement text itself.
func TestMaskDoesNotGrow(t *testing.T) {
	t.Parallel()
	const stand = "[masked]"
	var parts []string
	for i := range stand {
		for j := i + 3; j <= len(stand); j++ {
			parts = append(parts, stand[i:j])
		}
	}
	text := strings.Repeat("abc ", 1000)
	if got, want := webhook.Mask(text, append(parts, "abc")...), strings.Repeat(stand+" ", 1000); got != want {
		t.Errorf("%d bytes, want %d", len(got), len(want))
	}
	if got := webhook.Mask("a secret in a [masked] text",
		append(parts, "secret")...); got != "a [masked] in a [masked] text" {
		t.Errorf("%q", got)
	}
}

// TestMaskIsBounded: if there are too many secrets to search for, the whole text is dropped.
func TestMaskIsBounded(t *testing.T) {
	t.Parallel()
	c := newClient(t, webhook.Options{})
	w := compile(t, webhook.Definition{Request: webhook.Request{URL: "http://a.example"}})
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("secret-", i)
	}
	for _, tc := range []struct {
		secrets []string
		want    string
	}{
		{many[:10], "it is [masked]"}, {many, "[masked]"}, {[]string{strings.Repeat("x", 100<<10)}, "[masked]"},
	} {
		if got := c.Mask(t.Context(), w, "it is secret-7", tc.secrets...); got != tc.want {
			t.Errorf("%d secrets: %q", len(tc.secrets), got)
		}
	}
}
