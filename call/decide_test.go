package call

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

// For arbitrary answers of a server, a call ends and sends a bounded number of requests. A write that must not be
// executed twice is never repeated after a try that may have been executed.
func TestDecideProperties(t *testing.T) {
	t.Parallel()
	verbs := []Verb{VerbGet, VerbList, VerbCreate, VerbUpdate, VerbPatch, VerbApply, VerbDelete, VerbDeleteCollection}
	bodies := []string{
		`{}`, `{"metadata":{"name":"a"}}`, `{"metadata":{"generateName":"a-"}}`,
		`{"metadata":{"name":"a","resourceVersion":"5"}}`, `[]`,
		`[{"op":"test","path":"/metadata/resourceVersion","value":"5"}]`,
	}
	patches := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType}
	answers := []answer{
		{err: io.EOF},
		{err: io.EOF, unsent: true},
		{err: &timeoutError{}},
		{code: 200, body: []byte(`{"metadata":{"name":"a"}}`)},
		{code: 200, body: []byte(`<html>`)},
		{code: 400},
		{code: 401},
		{code: 403},
		{code: 404, body: []byte(`{"kind":"Status","reason":"NotFound"}`)},
		{code: 404},
		{code: 409},
		{code: 410},
		{code: 422},
		{code: 429},
		{code: 500},
		{code: 502},
		{code: 503},
		{code: 504},
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			Retries:   rapid.IntRange(-1, 6).Draw(t, "retries"),
			Conflicts: rapid.IntRange(-1, 4).Draw(t, "conflicts"),
		}.resolved()
		sent := []byte(rapid.SampledFrom(bodies).Draw(t, "body"))
		r := &Request{
			Verb: rapid.SampledFrom(verbs).Draw(t, "verb"), PatchType: rapid.SampledFrom(patches).Draw(t, "patch"),
			NotFoundOK: rapid.Bool().Draw(t, "absence is fine"),
		}
		if rapid.Bool().Draw(t, "dry run") {
			r.Query = url.Values{"dryRun": {"All"}}
		}
		if rapid.Bool().Draw(t, "on conflict") {
			r.OnConflict = func(_ context.Context, c Conflict) (Request, error) { return c.Request, nil }
		}
		var pr progress
		doubtful := false
		// One try, the retries, the conflicts, one reload of credentials, and a read to settle doubt for each refusal.
		bound := 2 + 2*max(p.Retries, 0) + 2*max(p.Conflicts, 0) + 1
		for n := 1; ; n++ {
			a := rapid.SampledFrom(answers).Draw(t, "answer")
			a.header = http.Header{"Content-Type": {JSON}}
			write := changes(r, sent) && pr.verifying == nil
			if write && doubtful && !repeatable(r, sent) {
				t.Fatalf("try %d of %s %s was sent although an earlier one may have been executed", n, r.Verb, sent)
			}
			if write && (a.err != nil && !a.unsent || a.code >= 500) {
				doubtful = true
			}
			var o outcome
			if pr.inDoubt && !changes(r, sent) {
				t.Fatalf("the outcome of a dry run of %s is unknown", r.Verb)
			}
			o, pr = decide(r, p, sent, pr, a, func() float64 { return rapid.Float64Range(0, 1).Draw(t, "jitter") })
			if o.after > p.Cap+p.Base {
				t.Fatalf("waits %v", o.after)
			}
			switch o.action {
			case conflict:
				doubtful = false // the next request is a different one
			case fail:
				if o.err == nil {
					t.Fatal("fails without an error")
				}
				return
			case done:
				return
			}
			if n > bound {
				t.Fatalf("still going after %d tries", n)
			}
		}
	})
}

func TestThousandRetriesStayInBounds(t *testing.T) {
	t.Parallel()
	p := Policy{Retries: 1000}.resolved()
	var pr progress
	for i := range 1000 {
		var o outcome
		o, pr = decide(&Request{Verb: VerbGet}, p, nil, pr, answer{code: 503, header: http.Header{}},
			func() float64 { return 0 })
		if o.action != retry || o.after < 40*time.Millisecond || o.after > p.Cap {
			t.Fatalf("retry %d: %+v", i, o)
		}
	}
}

// TestAnApplyThatDoesNotFit: an apply that the schema does not accept is not retried. The server reports it as an
// internal error, and would do so each time.
func TestAnApplyThatDoesNotFit(t *testing.T) {
	t.Parallel()
	a := answer{code: 500, body: []byte(`{"kind":"Status","status":"Failure","code":500,"message":` +
		`"failed to create typed patch object (a/b; /v1, Kind=ConfigMap): .size: field not declared in schema"}`)}
	for _, tc := range []struct {
		verb Verb
		want action
	}{{VerbApply, fail}, {VerbPatch, retry}} {
		r := &Request{Verb: tc.verb, PatchType: types.MergePatchType}
		o, _ := decide(r, Policy{}.resolved(), []byte(`{"metadata":{"resourceVersion":"5"}}`), progress{}, a,
			func() float64 { return 0 })
		if o.action != tc.want || errors.Is(o.err, ErrSchema) != (tc.want == fail) {
			t.Errorf("%s: got %v, %v", tc.verb, o.action, o.err)
		}
	}
}

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	want := Policy{
		Timeout: 10 * time.Second, Retries: 5, Base: 400 * time.Millisecond, Cap: 10 * time.Second, Conflicts: 5,
		PageSize: 50,
	}
	if d := cmp.Diff(want, Policy{}.resolved(), cmpopts.IgnoreFields(Policy{}, "Budget")); d != "" {
		t.Error(d)
	}
	none := Policy{Retries: -1, Conflicts: -1, PageSize: -1, Base: time.Minute}
	if d := cmp.Diff(none.resolved(), none.resolved().resolved(), cmpopts.IgnoreFields(Policy{}, "Budget")); d != "" {
		t.Errorf("resolving twice: %s", d)
	}
	if r := none.resolved(); r.Cap != time.Minute || r.Retries != -1 || r.Conflicts != -1 || r.PageSize != -1 {
		t.Errorf("got %+v", r)
	}
}
