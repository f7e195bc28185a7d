package httpapi

import (
	"fmt"
	"testing"

	"github.com/fairlead-io/fairlead/operations"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	k := newKeys()
	key, one, two := keyOf{"ns", "k"}, operations.Resource{Type: "app", ID: "1"}, operations.Resource{Type: "app", ID: "2"}
	claim := func(r operations.Resource) func(bool) {
		t.Helper()
		ours, done := k.claim(key, r)
		if !ours {
			t.Fatalf("the key is not free for %s", r)
		}
		return done
	}
	refused := func(reason string) {
		t.Helper()
		if ours, _ := k.claim(key, two); ours {
			t.Errorf("%s: the key is free for another resource", reason)
		}
	}
	first, second := claim(one), claim(one)
	first(false)
	refused("one of two requests was refused, and the other one is under way")
	second(false)
	claim(two)(false) // the key is unused
	first, second = claim(one), claim(one)
	second(true)
	first(false)
	refused("one of two requests was accepted")
	other := keyOf{"ns", "other"}
	for range 3 { // claimed, freed and claimed again: it is remembered from the last claim on
		_, done := k.claim(other, one)
		done(false)
	}
	_, done := k.claim(other, one)
	done(true)
	for i := range maxKeys - 2 {
		_, done := k.claim(keyOf{"ns", fmt.Sprint(i)}, one)
		done(true)
	}
	if ours, _ := k.claim(other, two); ours || k.owners.Len() > maxKeys {
		t.Errorf("forgotten too early, or too late: %v, %d keys", ours, k.owners.Len())
	}
	mine := keyOf{"mine", "k"}
	_, done = k.claim(mine, one)
	done(true)
	for i := range maxKeys {
		_, done := k.claim(keyOf{"ns", fmt.Sprint("more", i)}, one)
		done(true)
	}
	if ours, _ := k.claim(mine, two); ours {
		t.Error("the keys of one namespace have evicted that of another one")
	}
}
