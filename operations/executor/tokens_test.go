package executor

import (
	"fmt"
	"testing"
	"time"
)

// TestTokensAreBounded: a namespace whose Webhooks keep changing their audience holds a bounded number of tokens, and
// evicts none of others.
func TestTokensAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &secrets{now: func() time.Time { return now }, tokens: make(map[string]map[tokenKey]token)}
	victim := tokenKey{"victim", "account", "audience"}
	s.keep(victim, token{value: "kept", renew: now.Add(time.Hour)})
	key := func(i int) tokenKey { return tokenKey{"hostile", "account", fmt.Sprint(i)} }
	for i := range 3 * maxTokens {
		s.keep(key(i), token{value: "t", renew: now.Add(time.Hour)})
	}
	if n := len(s.tokens["hostile"]); n != maxTokens {
		t.Errorf("%d are kept", n)
	}
	if s.cached(key(3*maxTokens-1)).value == "" || s.cached(victim).value != "kept" {
		t.Error("the latest one, or that of another namespace, was evicted")
	}
	now = now.Add(2 * time.Hour)
	if s.keep(key(-1), token{value: "t", renew: now.Add(time.Hour)}); len(s.tokens["hostile"]) != 1 {
		t.Errorf("%d are kept, of which all but one have to be renewed", len(s.tokens["hostile"]))
	}
}
