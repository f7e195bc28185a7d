package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/internal/source"
	"github.com/fairlead-io/fairlead/internal/store"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
	"github.com/fairlead-io/fairlead/shard"
)

// setupShared is setup with a store that holds all slots or none. hold switches between them, and returns when the
// store has followed.
func setupShared(t *testing.T) (a *api, hold func(all bool)) {
	slots := source.NewSharding(shard.Layout{})
	st := store.New(store.Options{
		Resource: v1alpha1.OperationsResource, Kind: v1alpha1.GroupVersion.WithKind("Operation"),
		Namespaced: true, Shard: slots.String(),
	})
	a = setup(t, func(o *httpapi.Options) { anonymous(o); o.Operations = st })
	src, err := source.New(source.Config{
		REST: a.config, Resource: v1alpha1.OperationsResource, Namespaces: []string{a.namespace}, Sharding: slots,
	}, st.Sink)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(a.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		defer st.Close()
		_ = src.Run(ctx) // its error comes from the end of the context
	})
	t.Cleanup(func() { stop(); running.Wait() })
	hold = func(all bool) {
		set := slots.Layout().Set()
		if all {
			set = slots.Layout().All()
		}
		err := slots.Set(set)
		if err == nil {
			err = slots.Wait(a.ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hold(false)
	<-st.Synced()
	return a, hold
}

// names returns the names on a page, and the mark of the next page.
func names(t *testing.T, body string) (ids []string, next string) {
	t.Helper()
	var page httpapi.Page
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, v := range page.Items {
		ids = append(ids, v.ResourceID)
	}
	return ids, page.Continue
}

// TestAnswersForOtherSlots: a replica that does not hold the slot of a namespace answers requests. Pages continue from
// one replica to another.
func TestAnswersForOtherSlots(t *testing.T) {
	a, hold := setupShared(t)
	const n = 7
	for i := range n {
		body := strings.Replace(deletion, `"resourceID":"1"`, fmt.Sprintf(`"resourceID":"%d"`, i), 1)
		if got := a.do("", "POST", "/operations", body); got.status != http.StatusAccepted {
			t.Fatalf("%+v", got)
		}
	}
	a.finish("app-3", v1alpha1.PhaseFailed)
	if got := a.do("", "GET", "/operations/app/3", ""); got.status != http.StatusOK ||
		!strings.Contains(got.body, "FAILED") {
		t.Errorf("%+v", got)
	}
	var all []string
	next := ""
	for i := 0; i == 0 || next != ""; i++ {
		hold(i%2 == 1)
		got := a.do("", "GET", "/operations?limit=2&continue="+url.QueryEscape(next), "")
		var some []string
		some, next = names(t, got.body)
		all = append(all, some...)
	}
	if diff := cmp.Diff([]string{"0", "1", "2", "3", "4", "5", "6"}, all); diff != "" {
		t.Errorf("pages, -want +got:\n%s", diff)
	}
	hold(false)
	if some, _ := names(t, a.do("", "GET", "/operations?status=FAILED", "").body); len(some) != 1 || some[0] != "3" {
		t.Errorf("those that failed: %v", some)
	}
	if got := a.do("", "POST", "/operations/app/5:cancel", ""); got.status != http.StatusAccepted {
		t.Errorf("%+v", got)
	}
}

// TestEventsWhenSlotsMove: an event stream ends only with its operation. It continues when the slot leaves this
// replica, returns, or was never here.
func TestEventsWhenSlotsMove(t *testing.T) {
	a, hold := setupShared(t)
	for name, tc := range map[string]struct{ before, after bool }{
		"1 leaves": {true, false}, "2 never here": {false, false}, "3 comes": {false, true}, "4 stays": {true, true},
	} {
		id := name[:1]
		hold(tc.before)
		body := strings.Replace(deletion, `"resourceID":"1"`, `"resourceID":"`+id+`"`, 1)
		if got := a.do("", "POST", "/operations", body); got.status != http.StatusAccepted {
			t.Fatalf("%s: %+v", name, got)
		}
		req, err := http.NewRequestWithContext(a.ctx, "GET", a.url+"/operations/app/"+id+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			said, ok := strings.CutPrefix(lines.Text(), "event: ")
			if !ok {
				continue
			}
			if got = append(got, said); len(got) == 1 {
				hold(tc.after)
				a.finish("app-"+id, v1alpha1.PhaseSuccess)
			}
		}
		resp.Body.Close()
		if diff := cmp.Diff([]string{"progress", "succeeded"}, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestEventsOfDeletionInOtherSlot: a stream of another replica's operation ends when that operation is deleted.
func TestEventsOfDeletionInOtherSlot(t *testing.T) {
	a, hold := setupShared(t)
	hold(true)
	a.do("", "POST", "/operations", deletion)
	req, err := http.NewRequestWithContext(a.ctx, "GET", a.url+"/operations/app/1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if said, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if got = append(got, said); len(got) == 1 {
				hold(false)
				a.remove("app-1")
			}
		}
	}
	if diff := cmp.Diff([]string{"progress", "gone"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// remove deletes an operation.
func (a *api) remove(name string) {
	a.t.Helper()
	if _, err := call.Do(a.ctx, a.calls, call.Request{
		Verb: call.VerbDelete, Resource: v1alpha1.OperationsResource, Kind: v1alpha1.KindOperation, Namespace: a.namespace,
		Name: name,
	}, call.Policy{}); err != nil {
		a.t.Fatal(err)
	}
}
