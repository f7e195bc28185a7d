package webhook_test

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/webhook"
)

// TestLongAnswersTakeTurns has an endpoint begin many long answers at once. Few of them are in memory, and nobody else waits.
func TestLongAnswersTakeTurns(t *testing.T) {
	t.Parallel()
	const most = 4 // as in definition.go
	begun, goOn := make(chan struct{}, 16), make(chan struct{})
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/long" && r.URL.Path != "/other" {
			return
		}
		_, _ = io.WriteString(w, `"`+strings.Repeat("x", 128<<10)) // more than is read without a place
		if r.URL.Path == "/long" {
			_ = http.NewResponseController(w).Flush()
			begun <- struct{}{}
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `"`)
	})
	client := newClient(t, webhook.Options{})
	hook := func(name, path string, timeout time.Duration) *webhook.Compiled {
		return compile(t, webhook.Definition{
			Namespace: "ns", Name: name, RequestTimeout: timeout, Request: webhook.Request{URL: server.URL + path},
		})
	}
	var calls sync.WaitGroup
	for range most {
		calls.Go(func() {
			if res := permit(t, client, hook("hostile", "/long", time.Minute)).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
				t.Errorf("one that has a place: %+v", res)
			}
		})
	}
	for range most {
		<-begun
	}
	// As soon as those have their places, one more waits in vain.
	waited := false
	for range 100 {
		if res := permit(t, client, hook("hostile", "/other", 500*time.Millisecond)).Call(t.Context(), aCall()); res.Verdict == webhook.Retry {
			waited = true
			break
		}
	}
	if !waited {
		t.Error("one too many is read at once")
	}
	for name, h := range map[string]*webhook.Compiled{
		"a short answer of the same endpoint": hook("hostile", "/short", time.Minute),
		"a long answer of another one":        hook("other", "/other", time.Minute),
	} {
		if res := permit(t, client, h).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
			t.Errorf("%s waits: %+v", name, res)
		}
	}
	close(goOn)
	calls.Wait()
	if res := permit(t, client, hook("hostile", "/long", time.Minute)).Call(t.Context(), aCall()); res.Verdict != webhook.Succeeded {
		t.Errorf("the places were not given back: %+v", res)
	}
}
