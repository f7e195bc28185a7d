package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const deletion = `{"operationType":"Delete","resourceType":"app","resourceID":"1","relatedResources":[{"resourceType":"db","resourceID":"7"}]}`

func TestSchedule(t *testing.T) {
	a := setup(t, anonymous)
	first := a.do("", "POST", "/operations", deletion, "Idempotency-Key", "k1")
	if first.status != http.StatusAccepted || first.header.Get("Location") != "/operations/app/1" ||
		first.header.Get("Retry-After") == "" {
		t.Fatalf("%+v", first)
	}
	if v := a.view(first); v.OperationID != "k1" || v.Status != operations.InProgress {
		t.Errorf("%+v", v)
	}
	if again := a.do("", "POST", "/operations", deletion, "Idempotency-Key", "k1"); again.status != http.StatusAccepted ||
		a.view(again).OperationID != "k1" {
		t.Errorf("the same key: %+v", again)
	}
	if other := a.do("", "POST", "/operations", strings.Replace(deletion, "Delete", "Update", 1), "Idempotency-Key",
		"k1"); other.status != http.StatusUnprocessableEntity {
		t.Errorf("the same key for another request: %+v", other)
	}
	another := strings.Replace(deletion, `"resourceID":"1"`, `"resourceID":"2"`, 1)
	if other := a.do("", "POST", "/operations", another, "Idempotency-Key",
		"k1"); other.status != http.StatusUnprocessableEntity {
		t.Errorf("the same key for another resource, which receivers could not distinguish: %+v", other)
	}
	if wrong := a.do("", "POST", "/operations", strings.Replace(deletion, "Delete", "Drop", 1), "Idempotency-Key",
		"k3"); wrong.status != http.StatusUnprocessableEntity {
		t.Errorf("an invalid request: %+v", wrong)
	}
	if mended := a.do("", "POST", "/operations", another, "Idempotency-Key", "k3"); mended.status != http.StatusAccepted {
		t.Errorf("the key of a request that was refused: %+v", mended)
	}
	conflict := a.do("", "POST", "/operations", deletion, "Idempotency-Key", "k2")
	var p httpapi.Problem
	_ = json.Unmarshal([]byte(conflict.body), &p) // do has checked it
	if conflict.status != http.StatusConflict || p.OperationID != "k1" || p.Running == nil {
		t.Errorf("while it runs: %+v", conflict)
	}
	a.finish("app-1", v1alpha1.PhaseFailed)
	if old := a.do("", "POST", "/operations", deletion, "Idempotency-Key",
		"k1"); a.view(old).Status != operations.Failed ||
		old.header.Get("Retry-After") != "" {
		t.Errorf("the same key after the end: %+v", old)
	}
	// The watch may lag, so wait until it shows the end before scheduling the next operation.
	a.eventually(func() bool {
		return strings.Contains(a.do("", "GET", "/operations?status=FAILED", "").body, `"operationID":"k1"`)
	})
	next := a.do("", "POST", "/operations", deletion, "Idempotency-Key", "k2")
	if next.status != http.StatusAccepted {
		t.Fatalf("after the end: %+v", next)
	}
	// At once, although the watch may still show the end of the previous operation.
	if shown := a.view(a.do("", "GET", "/operations/app/1", "")); shown.OperationID != "k2" ||
		shown.Status != operations.InProgress {
		t.Errorf("the outcome of the previous operation was shown: %+v", shown)
	}
}

func TestBadRequests(t *testing.T) {
	a := setup(t, anonymous)
	tests := []struct {
		reason, method, path, body string
		headers                    []string
		status                     int
		want                       string
	}{
		{"empty body", "POST", "/operations", "", nil, 400, "send the fields"},
		{"no JSON", "POST", "/operations", "{", nil, 400, "cannot be read"},
		{"unknown field", "POST", "/operations", `{"resourceTyp":"a"}`, nil, 400, "resourceTyp"},
		{"every reason at once", "POST", "/operations", `{"operationType":"Drop"}`, nil, 422, "spec.resourceID"},
		{
			"two ids", "POST", "/operations", `{"operationID":"a","operationType":"Delete","resourceType":"a","resourceID":"b"}`,
			[]string{"Idempotency-Key", "b"},
			422, "differ",
		},
		{
			"key that is not valid in a header", "POST", "/operations", deletion,
			[]string{"Idempotency-Key", "a.b"},
			422,
			"spec.operationID",
		},
		{
			"credentials", "POST", "/operations",
			`{"operationType":"Delete","resourceType":"a","resourceID":"b","requestObject":{"headers":{"Cookie":"x"}}}`, nil,
			422, "credentials",
		},
		{"too large", "POST", "/operations", `{"operationID":"` + strings.Repeat("x", 600<<10) + `"}`, nil, 413, "512 KiB"},
		{"more than one value", "POST", "/operations", deletion + "{}", nil, 400, "after top-level value"},
		{"a list", "POST", "/operations", "[" + deletion + "]", nil, 400, "one JSON object"},
		{"nothing", "POST", "/operations", "null", nil, 400, "one JSON object"},
		{
			"an invalid duration", "POST", "/operations", `{"resourceID":"1","timeout":"soon"}`, nil, 400,
			`"field":"spec.timeout","problem":"must be a duration`,
		},
		{
			"a duration without unit", "POST", "/operations", `{"ttlAfterFinished":30}`, nil, 400,
			`"field":"spec.ttlAfterFinished","problem":"must be a duration`,
		},
		{
			"a duration of zero", "POST", "/operations", `{"timeout":"0s"}`, nil, 422,
			`"field":"spec.timeout","problem":"must be a duration above zero`,
		},
		{
			"a negative duration", "POST", "/operations", `{"timeout":"-1s","ttlAfterFinished":"-1s"}`, nil, 422,
			`"field":"spec.ttlAfterFinished"`,
		},
		{
			"every field of a wrong type", "POST", "/operations", `{"webhookIDs":"a","resourceID":7}`, nil, 400,
			"spec.resourceID must not be of type number; spec.webhookIDs must not be of type string",
		},
		{
			"a field of a wrong type within another", "POST", "/operations", `{"relatedResources":[{"resourceType":1}]}`, nil,
			400, `"field":"spec.relatedResources[0].resourceType"`,
		},
		{
			"an unknown field within another", "POST", "/operations", `{"requestObject":{"tenant":"a"}}`, nil, 400,
			`"field":"spec.requestObject.tenant","problem":"is not a field`,
		},
		{"bad limit", "GET", "/operations?limit=0", "", nil, 400, "limit"},
		{"bad status", "GET", "/operations?status=done", "", nil, 400, "IN_PROGRESS"},
		{"bad token", "GET", "/operations?continue=%21", "", nil, 400, "page before"},
		{"bad related", "GET", "/operations?related=db", "", nil, 400, "TYPE/ID"},
		{"nothing to cancel", "POST", "/operations/app/9:cancel", "", nil, 404, "not found"},
		{"no verb", "POST", "/operations/app/9", "", nil, 405, "cancel"},
		{"callback without JSON", "POST", "/callbacks/good", "x", nil, 400, "cannot be read"},
		{
			"callback with more than one value", "POST", "/callbacks/good", `{"status":"SUCCEEDED"}x`, nil, 400,
			"after top-level value",
		},
		{"callback that is a list", "POST", "/callbacks/good", `[{"status":"SUCCEEDED"}]`, nil, 400, "one JSON object"},
		{
			"callback with an error that is not a string",
			"POST", "/callbacks/good", `{"status":"FAILED","error":{"code":1}}`, nil,
			400, "cannot be read",
		},
		{"callback without status", "POST", "/callbacks/good", `{"status":"maybe"}`, nil, 400, "SUCCEEDED"},
		{"unknown callback", "POST", "/callbacks/bad", `{"status":"SUCCEEDED"}`, nil, 404, "exactly as it was sent"},
	}
	for _, tc := range tests {
		got := a.do("", tc.method, tc.path, tc.body, tc.headers...)
		if got.status != tc.status || !strings.Contains(got.body, tc.want) {
			t.Errorf("%s: %d %s, want %d with %q", tc.reason, got.status, got.body, tc.status, tc.want)
		}
	}
	if got := a.do("", "POST", "/operations/app/9", ""); got.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("405 does not say what is allowed: %v", got.header)
	}
	// Malformed reports have not used up the token.
	if got := a.do("", "POST", "/callbacks/good",
		`{"status":"SUCCEEDED","error":"but no"}`); got.status != http.StatusNoContent {
		t.Errorf("callback: %+v", got)
	}
	if got := a.do("", "POST", "/callbacks/good", `{"status":"SUCCEEDED"}`); got.status != http.StatusConflict {
		t.Errorf("callback used twice: %+v", got)
	}
	if diff := cmp.Diff([]string{"false but no"}, a.callbacks.got); diff != "" {
		t.Errorf("a success with an error text is a failure: -want +got:\n%s", diff)
	}
}

func TestAnyNameFitsIntoAPath(t *testing.T) {
	a := setup(t, anonymous)
	for _, id := range []string{"a/b", "ä ö?#", "x:cancel", "%2F", ".."} {
		body, _ := json.Marshal(map[string]string{"operationType": "Delete", "resourceType": "A/B", "resourceID": id})
		got := a.do("", "POST", "/operations", string(body))
		at := got.header.Get("Location")
		if got.status != http.StatusAccepted || a.view(a.do("", "GET", at, "")).ResourceID != id {
			t.Errorf("%q at %s: %+v", id, at, got)
		}
		for _, verb := range []string{":cancel", "%3Acancel"} {
			if got := a.do("", "POST", at+verb, ""); got.status != http.StatusAccepted || a.view(got).ResourceID != id {
				t.Errorf("cancel %q with %s: %+v", id, verb, got)
			}
		}
	}
}

func TestPages(t *testing.T) {
	a := setup(t, anonymous)
	var want []string
	for i := range 7 {
		kind := "app"
		if i%2 == 1 {
			kind = "db"
		}
		id := fmt.Sprint(i)
		want = append(want, kind+"-"+id)
		a.do("", "POST", "/operations", strings.NewReplacer(`"app"`, `"`+kind+`"`, `"1"`, `"`+id+`"`).Replace(deletion))
	}
	slices.Sort(want)
	a.finish("app-0", v1alpha1.PhaseSuccess)
	list := func(query string) (names []string) {
		for next := ""; ; {
			got := a.do("", "GET", "/operations?limit=2&continue="+next+query, "")
			var page httpapi.Page
			if err := json.Unmarshal([]byte(got.body), &page); err != nil || len(page.Items) > 2 {
				t.Fatalf("%v %s", err, got.body)
			}
			for _, v := range page.Items {
				names = append(names, v.ResourceType+"-"+v.ResourceID)
			}
			if next = page.Continue; next == "" {
				return names
			}
		}
	}
	a.eventually(func() bool { return len(list("")) == 7 && len(list("&status=succeeded")) == 1 })
	if diff := cmp.Diff(want, list("")); diff != "" {
		t.Error(diff)
	}
	for query, n := range map[string]int{
		"&resourceType=db": 3, "&status=IN_PROGRESS": 6, "&related=db/7": 7,
		"&related=db/8": 0,
	} {
		if got := list(query); len(got) != n {
			t.Errorf("%s: %v", query, got)
		}
	}
}

func TestLocks(t *testing.T) {
	a := setup(t, anonymous)
	const locking = `{"operationType":"Delete","resourceType":"app","resourceID":"1","webhookIDs":["w"],
		"relatedResources":[{"resourceType":"db","resourceID":"7","lock":true},{"resourceType":"db","resourceID":"8"}]}`
	scheduled := a.do("", "POST", "/operations", locking)
	db := func(id string) v1alpha1.ResourceReference {
		return v1alpha1.ResourceReference{ResourceType: "db", ResourceID: id}
	}
	want := []v1alpha1.RelatedResource{{ResourceReference: db("7"), Lock: true}, {ResourceReference: db("8")}}
	if diff := cmp.Diff(want, a.view(scheduled).RelatedResources); diff != "" || scheduled.status != http.StatusAccepted {
		t.Errorf("the answer is %d (-want +got):\n%s", scheduled.status, diff)
	}
	if got := a.do("", "POST", "/operations",
		strings.Replace(locking, `"lock":true`, `"lock":"yes"`, 1)); got.status != http.StatusBadRequest {
		t.Errorf("a lock that is not a boolean: %d %s", got.status, got.body)
	}
	if got := a.do("", "POST", "/operations",
		strings.Replace(locking, `"lock":true`, `"locked":true`, 1)); got.status != http.StatusBadRequest {
		t.Errorf("a misspelled lock: %d %s", got.status, got.body)
	}
	const says = "waiting for the end of operation one (Update) of db/7, because of db/7"
	a.setStatus("app-1", func(s *v1alpha1.OperationStatus) {
		s.Phase = v1alpha1.PhaseInProgress
		s.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWaitingForLock, Message: says,
			LastTransitionTime: metav1.Now(),
		}}
	})
	a.eventually(func() bool { return a.view(a.do("", "GET", "/operations/app/1", "")).Waiting == says })
	a.finish("app-1", v1alpha1.PhaseSuccess)
	a.eventually(func() bool { return a.view(a.do("", "GET", "/operations/app/1", "")).Waiting == "" })
}

func TestEvents(t *testing.T) {
	a := setup(t, func(o *httpapi.Options) { anonymous(o); o.MaxStreams = 1 })
	a.do("", "POST", "/operations", deletion)
	soon, cancel := context.WithTimeout(a.ctx, 10*time.Second) // before the heartbeat, which checks in any case
	defer cancel()
	req, err := http.NewRequestWithContext(soon, "GET", a.url+"/operations/app/1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var names []string
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if names = append(names, name); len(names) == 1 {
				if got := a.do("", "GET", "/operations/app/1/events", ""); got.status != http.StatusServiceUnavailable ||
					got.header.Get("Retry-After") == "" {
					t.Errorf("one stream too many: %+v", got)
				}
				a.finish("app-1", v1alpha1.PhaseSuccess)
			}
		}
	}
	if diff := cmp.Diff([]string{"progress", "succeeded"}, names); diff != "" || lines.Err() != nil {
		t.Errorf("%v %s", lines.Err(), diff)
	}
}

// TestOpenAPI compares the document with the handler: all paths and methods exist, and answers have no other fields.
func TestOpenAPI(t *testing.T) {
	a := setup(t, anonymous)
	var doc struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(httpapi.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		concrete := strings.NewReplacer("{resourceType}", "app", "{resourceID}", "9", "{token}", "t").Replace(path)
		for method := range methods {
			got := a.do("", strings.ToUpper(method), concrete, "")
			if got.status == http.StatusMethodNotAllowed || strings.Contains(got.body, "no such path") {
				t.Errorf("%s %s: %d", method, path, got.status)
			}
		}
	}
	for schema, value := range map[string]any{
		"Operation": operations.View{}, "Page": httpapi.Page{}, "Problem": httpapi.Problem{},
		"WebhookCall": v1alpha1.WebhookCallStatus{}, "Request": v1alpha1.OperationSpec{},
		"RelatedResource": v1alpha1.RelatedResource{},
	} {
		var documented []string
		for name := range doc.Components.Schemas[schema].Properties {
			documented = append(documented, name)
		}
		slices.Sort(documented)
		fields := jsonFields(reflect.TypeOf(value))
		slices.Sort(fields)
		if diff := cmp.Diff(fields, documented); diff != "" {
			t.Errorf("%s: -code +document:\n%s", schema, diff)
		}
	}
}

func jsonFields(t reflect.Type) (names []string) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, jsonFields(f.Type)...)
		case f.IsExported():
			names = append(names, name)
		}
	}
	return names
}

var _ httpapi.CallbackSink = (*executor.Taker)(nil)
