package why_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/why"
)

var shop = why.Object{Group: "fairlead.io", Kind: "Operation", Namespace: "prod", Name: "shop"}

func explainer(causes ...why.Cause) why.Explainer {
	return why.Func(func(context.Context, why.Object) []why.Cause { return causes })
}

// TestAsk: the most direct cause comes first, whichever explainer returns it. A cause of the program comes before all
// others, and duplicates are dropped.
func TestAsk(t *testing.T) {
	a := why.Ask(t.Context(), shop,
		explainer(why.Cause{Type: why.BackOff, Message: "failed"}, why.Cause{Type: why.Parked, Message: "waits"}),
		explainer(why.Cause{Type: why.Forbidden, Message: "may not"}, why.Cause{Type: why.BackOff, Message: "failed"}),
		explainer(),
		explainer(why.Cause{Type: "QuotaUsedUp", Message: "of the registry"}),
	)
	var got []why.Type
	for _, c := range a.Causes {
		got = append(got, c.Type)
	}
	want := []why.Type{"QuotaUsedUp", why.Forbidden, why.BackOff, why.Parked}
	if diff := cmp.Diff(want, got); diff != "" || !a.Stuck || a.Kind != "Operation" || a.Namespace != "prod" ||
		a.Name != "shop" {
		t.Errorf("%+v, -want +got:\n%s", a, diff)
	}
}

// TestMostDirect: duplicate causes are merged, and the one about the object itself wins.
func TestMostDirect(t *testing.T) {
	held := why.Cause{Type: why.HeldBy, Message: "replica b has its slot"}
	other := held
	other.Depth, other.About, other.Progress = 1, &shop, true
	lock := why.Cause{Type: why.LockHeld, Message: "waits"}
	a := why.NewAnswer(shop, []why.Cause{lock, other, held})
	if len(a.Causes) != 2 || a.Causes[0].Type != why.HeldBy || a.Causes[0].Depth != 0 || a.Causes[0].About != nil {
		t.Errorf("%+v", a)
	}
}

// TestNotStuck: an object is not stuck if it has ended, has no cause, or makes progress.
func TestNotStuck(t *testing.T) {
	called := why.Cause{Type: why.Parked, Message: "calls its webhook", Progress: true}
	if a := why.NewAnswer(shop, []why.Cause{called, {Type: why.LockHeld, Message: "waits"}}); !a.Stuck {
		t.Errorf("not stuck although one of two causes makes no progress: %+v", a)
	}
	for _, causes := range [][]why.Cause{nil, {{Type: why.Ended, Message: "Succeeded"}}, {called}} {
		if a := why.NewAnswer(shop, causes); a.Stuck || len(a.Causes) != len(causes) {
			t.Errorf("%v: %+v", causes, a)
		}
	}
}

// TestJSON: the names of the fields are a contract.
func TestJSON(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, causes := range map[string][]why.Cause{
		`{"kind":"Operation","namespace":"prod","name":"shop","stuck":false,"causes":[]}`: nil,
		`{"kind":"Operation","namespace":"prod","name":"shop","stuck":true,"causes":[{"type":"RetryAfter","message":"m",` +
			`"since":"2026-01-02T03:04:05Z","until":"2026-01-02T03:05:05Z","evidence":{"status":"429"},"advice":"wait"}]}`: {{
			Type: why.RetryAfter, Message: "m", Since: at, Until: at.Add(time.Minute),
			Evidence: map[string]string{"status": "429"},
			Advice:   "wait",
		}},
		`{"kind":"Operation","namespace":"prod","name":"shop","stuck":false,"causes":[{"type":"Ended","message":"m",` +
			`"since":null,"until":null,"evidence":{},"advice":""}]}`: {{Type: why.Ended, Message: "m"}},
	} {
		got, err := json.Marshal(why.NewAnswer(shop, causes))
		if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
		var read why.Answer
		if err := json.Unmarshal(got, &read); err != nil || len(read.Causes) != len(causes) {
			t.Errorf("the answer cannot be decoded: %v", err)
		}
	}
}

// TestBecause: an error keeps its identity, and its causes survive wrapping.
func TestBecause(t *testing.T) {
	cause := why.Cause{Type: why.RateLimited, Message: "the quota is used up"}
	err := fmt.Errorf("cannot push: %w", why.Because(io.ErrClosedPipe, cause))
	if !errors.Is(err, io.ErrClosedPipe) || err.Error() != "cannot push: "+io.ErrClosedPipe.Error() {
		t.Errorf("the error has changed: %v", err)
	}
	if diff := cmp.Diff([]why.Cause{cause}, why.Of(err)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if why.Because(nil, cause) != nil || why.Of(io.EOF) != nil || why.Of(nil) != nil {
		t.Error("an error without causes has causes")
	}
}

// TestDepth: causes of the object itself come before causes of the objects that it waits for.
func TestDepth(t *testing.T) {
	t.Parallel()
	of := why.Object{Kind: "Operation", Namespace: "a", Name: "first"}
	hook := &why.Object{Kind: "Webhook", Namespace: "a", Name: "crm"}
	below := why.Beneath(of, []why.Cause{
		{Type: why.Quarantined, About: hook}, {Type: why.Ended}, {Type: why.DeadlinePassed, Depth: 1},
	})
	a := why.NewAnswer(why.Object{Kind: "Operation"}, append(below, why.Cause{Type: why.LockHeld}))
	var got []string
	for _, c := range a.Causes {
		got = append(got, fmt.Sprint(c.Type, " ", c.Depth, " ", c.About))
	}
	want := []string{"LockHeld 0 <nil>", "Quarantined 1 Webhook/a/crm", "DeadlinePassed 2 Operation/a/first"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestComplete: a cause without type or advice gets the usual ones, and long texts are cut.
func TestComplete(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 10_000)
	evidence := map[string]string{"error": long, "status": "500"}
	a := why.NewAnswer(shop, []why.Cause{
		{Type: why.BackOff, Message: long, Evidence: evidence},
		{Message: "waits"},
		{Type: "NoMoney", Message: "paid?"},
		{Type: why.Parked, Message: "at work", Progress: true},
		{Type: why.Ended, Message: "done"},
	})
	for _, c := range a.Causes {
		usual := c.Type == why.BackOff || c.Message == "waits"
		if c.Type == "" || usual != (c.Advice != "") || len(c.Message) > 3000 || len(c.Evidence["error"]) > 3000 ||
			!utf8.ValidString(c.Message) {
			t.Errorf("%+v", c)
		}
	}
	if len(evidence["error"]) != len(long) {
		t.Error("the evidence of the caller was changed")
	}
}
