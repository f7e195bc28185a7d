package webhook_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fairlead-io/fairlead/internal/seed"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// TestTokensDisturbed lets many callers share the tokens of one cache. Tokens are revoked at any time, the token
// endpoint fails now and then, and calls are canceled. After a call was refused, no later call sends the same token.
func TestTokensDisturbed(t *testing.T) {
	t.Parallel()
	seed.Play(t, 1, func(t *testing.T, seed uint64) {
		var mu sync.Mutex
		rnd := rand.New(rand.NewPCG(seed, 0))
		granted, revoked, sent, refused := 0, map[string]bool{}, map[string][]string{}, map[string]bool{}
		chance := func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			return rnd.IntN(n) == 0
		}
		tokens := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			if chance(5) {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			granted++
			token := fmt.Sprintf("token-%d-long-enough", granted)
			revoked["Bearer "+token] = rnd.IntN(4) == 0 // revoked from the start
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":3600}`, token)
		})
		server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			token := r.Header.Get("Authorization")
			sent[r.Header.Get("webhook-id")] = append(sent[r.Header.Get("webhook-id")], token)
			if revoked[token] = revoked[token] || rnd.IntN(10) == 0; revoked[token] {
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
		client := newClient(t, webhook.Options{Resolver: allSecrets()})
		hook := compile(t, webhook.Definition{
			Request: webhook.Request{URL: server.URL}, Auth: oauth(tokens.URL), Breaker: webhook.Breaker{Failures: 1 << 30},
		})
		var callers sync.WaitGroup
		for c := range 8 {
			callers.Go(func() {
				for i := range 40 {
					call := aCall()
					call.ID = fmt.Sprint(c, "-", i)
					mu.Lock()
					before := map[string]bool{}
					for token := range refused {
						before[token] = true
					}
					mu.Unlock()
					ctx, cancel := context.WithCancel(t.Context())
					if chance(5) {
						mu.Lock()
						after := time.Duration(rnd.IntN(2000)) * time.Microsecond
						mu.Unlock()
						time.AfterFunc(after, cancel)
					}
					res := permit(t, client, hook).Call(ctx, call)
					cancel()
					mu.Lock()
					for n, token := range sent[call.ID] {
						if before[token] {
							t.Errorf("FAIRLEAD_SEED=%d: %s was refused before, and is sent again", seed, token)
						}
						if res.StatusCode != 0 && (n < len(sent[call.ID])-1 || res.StatusCode == http.StatusUnauthorized) {
							refused[token] = true
						}
					}
					if n := len(sent[call.ID]); n > 2 {
						t.Errorf("FAIRLEAD_SEED=%d: one call was sent %d times", seed, n)
					}
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if len(refused) == 0 {
			t.Error("no token was refused, so nothing was tried")
		}
	})
}
