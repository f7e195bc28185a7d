package crdtest

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
)

func operation(changes ...any) map[string]any {
	obj := map[string]any{
		"apiVersion": "fairlead.io/v1alpha1",
		"kind":       "Operation",
		"metadata":   map[string]any{"name": "app-1", "namespace": "a"},
		"spec":       map[string]any{"operationType": "Delete", "resourceType": "app", "resourceID": "1"},
	}
	for i := 0; i < len(changes); i += 2 {
		obj = with(obj, changes[i].(string), changes[i+1])
	}
	return obj
}

func many(n int, f func(int) any) []any {
	var out []any
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

func TestOperationCreate(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, v1alpha1.KindOperation)
	call := func(id string) map[string]any { return map[string]any{"webhookID": id, "state": "In Progress"} }
	tests := []struct {
		reason string
		obj    map[string]any
		want   string
	}{
		{"the three required fields are enough", operation(), ""},
		{"operationType is required", operation("spec.operationType", nil), "spec.operationType"},
		{"resourceType is required", operation("spec.resourceType", nil), "spec.resourceType"},
		{"resourceID is required", operation("spec.resourceID", nil), "spec.resourceID"},
		{"spec is required", operation("spec", nil), "spec: Required"},
		{"resourceType is not empty", operation("spec.resourceType", ""), "spec.resourceType"},
		{"resourceID is not empty", operation("spec.resourceID", ""), "spec.resourceID"},
		{"any text is an id", operation("spec.resourceID", "Ä/ö ?#"), ""},
		{"ids are bounded", operation("spec.resourceID", strings.Repeat("x", 513)), "spec.resourceID"},
		{"Create is a type", operation("spec.operationType", "Create"), ""},
		{"Update is a type", operation("spec.operationType", "Update"), ""},
		{"other types are refused", operation("spec.operationType", "Unpair"), "supported values"},
		{"Parallel is a mode", operation("spec.execution", "Parallel"), ""},
		{"other modes are refused", operation("spec.execution", "Random"), "supported values"},
		{"a UUID is an operation id", operation("spec.operationID", "7d444840-9dc0-11d1-b245-5ffdce74fad2"), ""},
		{"base64 is an operation id", operation("spec.operationID", "aGk/+w=="), ""},
		{"a dot would make two idempotency keys alike", operation("spec.operationID", "a.b"), "spec.operationID"},
		{"an operation id goes into a header", operation("spec.operationID", "a\nb"), "spec.operationID"},
		{"an operation id has no space", operation("spec.operationID", "a b"), "spec.operationID"},
		{"an operation id is not empty", operation("spec.operationID", ""), "spec.operationID"},
		{"a correlation id goes into a header", operation("spec.correlationID", "a\r\nX: y"), "spec.correlationID"},
		{"a correlation id may have spaces", operation("spec.correlationID", "a b"), ""},
		{"webhooks may be absent", operation("spec.webhookIDs", []any{}), ""},
		{"webhooks have names of objects", operation("spec.webhookIDs", []any{"clean-up", "a.b"}), ""},
		{"webhooks have no other names", operation("spec.webhookIDs", []any{"Clean up"}), "spec.webhookIDs[0]"},
		{
			"a webhook twice would share its idempotency key", operation("spec.webhookIDs", []any{"a", "b", "a"}),
			"each webhook once",
		},
		{"a compensation twice too", operation("spec.compensateWebhookIDs", []any{"a", "a"}), "each webhook once"},
		{
			"a webhook and its compensation may be the same",
			operation("spec.webhookIDs", []any{"a"}, "spec.compensateWebhookIDs", []any{"a"}, "spec.notifyWebhookID", "a"), "",
		},
		{"the suffix of compensation is no webhook", operation("spec.webhookIDs", []any{"a.compensate"}), ".compensate"},
		{"the suffix of notification is no webhook", operation("spec.notifyWebhookID", "a.notify"), ".notify"},
		{"a webhook may be called notify", operation("spec.notifyWebhookID", "notify"), ""},
		{
			"32 webhooks of the longest names are within the budget of rules",
			operation("spec.webhookIDs", many(32, func(i int) any { return strings.Repeat("a", 250) + strconv.Itoa(i) })), "",
		},
		{
			"33 are too many", operation("spec.webhookIDs", many(33, func(i int) any { return "w" + strconv.Itoa(i) })),
			"spec.webhookIDs",
		},
		{
			"related resources have a type and an id",
			operation("spec.relatedResources", []any{map[string]any{"resourceType": "a", "resourceID": "b"}}), "",
		},
		{"a related resource may be locked", operation("spec.relatedResources",
			[]any{map[string]any{"resourceType": "a", "resourceID": "b", "lock": true}}), ""},
		{"a lock is a boolean", operation("spec.relatedResources",
			[]any{map[string]any{"resourceType": "a", "resourceID": "b", "lock": "yes"}}), "lock"},
		{
			"a related resource without an id is none",
			operation("spec.relatedResources", []any{map[string]any{"resourceType": "a"}}), "resourceID",
		},
		{"a timeout is a Go duration", operation("spec.timeout", "1h30m"), ""},
		{"a timeout is above zero", operation("spec.timeout", "0s"), "above zero"},
		{"a timeout has a cap", operation("spec.timeout", "720h1s"), "up to 720h"},
		{"a timeout at the cap", operation("spec.timeout", "720h"), ""},
		{"a timeout is not negative", operation("spec.timeout", "-1h"), "above zero"},
		{"a timeout is a duration", operation("spec.timeout", "soon"), "spec.timeout"},
		{"a timeout has a unit", operation("spec.timeout", "10"), "spec.timeout"},
		{"days are no Go duration", operation("spec.timeout", "1d"), "spec.timeout"},
		{"a timeout fits into a duration", operation("spec.timeout", "9999999999h"), "spec.timeout"},
		{"a timeout is text", operation("spec.timeout", int64(30)), "spec.timeout"},
		{"zero deletes at once", operation("spec.ttlAfterFinished", "0s"), ""},
		{"a negative time to live is refused", operation("spec.ttlAfterFinished", "-1s"), "must be a duration"},
		{"a resource is an object", operation("spec.requestObject.resource",
			map[string]any{"a": map[string]any{"b": []any{int64(1)}}}), ""},
		{"a resource is text", operation("spec.requestObject.resource", "text"), ""},
		{"a resource is a list", operation("spec.requestObject.resource", []any{true}), ""},
		{"headers are texts", operation("spec.requestObject.headers", map[string]any{"X-Request-Id": "1"}), ""},
		{
			"headers are only texts", operation("spec.requestObject.headers", map[string]any{"X-Request-Id": int64(1)}),
			"headers",
		},
		{"header names are tokens", operation("spec.requestObject.headers", map[string]any{"a b": "1"}), "names must be"},
		{
			"header names are bounded", operation("spec.requestObject.headers", map[string]any{strings.Repeat("a", 129): "1"}),
			"names must be",
		},
		{
			"header values are bounded", operation("spec.requestObject.headers", map[string]any{"a": strings.Repeat("a", 4097)}),
			"values must not",
		},
		{"a status may be empty", operation("status", map[string]any{}), ""},
		{"a phase is one of three", operation("status.phase", "Done"), "supported values"},
		{"In Progress is a phase", operation("status.phase", "In Progress"), ""},
		{"calls are distinguished", operation("status.webhooks", []any{call("a"), call("b")}), ""},
		{"one entry per webhook", operation("status.webhooks", []any{call("a"), call("a")}), "Duplicate"},
		{"a call has a state", operation("status.notification", map[string]any{"webhookID": "a"}), "state"},
		{"history is bounded", operation("status.history", many(11, func(int) any {
			return map[string]any{
				"operationID": "a", "operationType": "Create", "phase": "Success",
				"finishedAt": "2026-01-02T03:04:05.000006Z",
			}
		})), "history"},
	}
	for _, name := range []string{
		"Authorization", "authorization", "AUTHORIZATION", "Proxy-Authorization", "Proxy-Authenticate", "Cookie",
		"Set-Cookie", "cookie2",
		"X-Forwarded-Authorization", "X-Api-Key", "api-key", "X-Auth-Token", "X-CSRF-Token", "X-Amz-Security-Token",
		"X-Client-Secret",
		"X-Forwarded-Client-Cert", "X_Api_Key", "x_authorization", "Proxy_Authorization", "Token", "X-AuthToken",
		"X-Access-Key", "Private-Token",
	} {
		tests = append(tests, struct {
			reason string
			obj    map[string]any
			want   string
		}{
			"credentials are no request header: " + name, operation("spec.requestObject.headers", map[string]any{name: "x"}),
			"credentials",
		})
	}
	for _, name := range []string{
		"X-Request-Id", "Accept-Language", "X-Tenant", "Traceparent", "Content-Type",
		"Idempotency-Key", "X-Author", "X-Tokens", "X-Key",
	} {
		tests = append(tests, struct {
			reason string
			obj    map[string]any
			want   string
		}{"no credentials: " + name, operation("spec.requestObject.headers", map[string]any{name: "x"}), ""})
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			check(t, a.create(t.Context(), clone(t, tt.obj)), tt.want)
		})
	}
}

func TestOperationUpdate(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, v1alpha1.KindOperation)
	const locked = "spec cannot change"
	fresh := operation("spec.operationID", "one", "spec.requestObject.resource", map[string]any{"a": int64(1)})
	status := func(obj map[string]any, id, phase string) map[string]any {
		return with(with(obj, "status.operationID", id), "status.phase", phase)
	}
	running, failed := status(fresh, "one", "In Progress"), status(fresh, "one", "Failed")
	unnamed := operation()
	replaced := with(failed, "spec.operationID", "two") // accepted, not picked up yet
	tests := []struct {
		reason   string
		old, obj map[string]any
		want     string
	}{
		{"nothing changes", running, running, ""},
		{"metadata may change while in progress", running, with(running, "metadata.labels", map[string]any{"a": "b"}), ""},
		{"status may change while in progress", running, with(running, "status.observedGeneration", int64(2)), ""},
		{"the first status", fresh, running, ""},
		{"an end", running, failed, ""},

		{"not picked up: no other request", fresh, with(fresh, "spec.operationID", "two"), locked},
		{
			"an empty status is not picked up", with(fresh, "status", map[string]any{}),
			with(with(fresh, "status", map[string]any{}), "spec.operationID", "two"), locked,
		},
		{"in progress: no other request", running, with(running, "spec.operationID", "two"), locked},
		{"in progress: the same request with other content", running, with(running, "spec.webhookIDs", []any{"x"}), locked},
		{
			"in progress: the resource inside the request", running, with(running, "spec.requestObject.resource.a", int64(2)),
			locked,
		},
		{"ended: another request", failed, replaced, ""},
		{"ended: the same request with a time to live", failed, with(failed, "spec.ttlAfterFinished", "1h"), ""},
		{"replaced, not picked up: no third request", replaced, with(replaced, "spec.operationID", "three"), locked},
		{"replaced, not picked up: not back to the first", replaced, failed, locked},
		{"replaced and picked up", replaced, status(replaced, "two", "In Progress"), ""},
		{
			"an ended status without an operation id is not about this spec", with(failed, "status.operationID", nil),
			with(with(failed, "status.operationID", nil), "spec.operationID", "two"), locked,
		},

		{
			"without id, in progress: locked", status(unnamed, "uid", "In Progress"),
			status(with(unnamed, "spec.operationID", "two"), "uid", "In Progress"), locked,
		},
		{
			"without id, ended: another request", status(unnamed, "uid", "Success"),
			status(with(unnamed, "spec.operationID", "two"), "uid", "Success"), "",
		},
		{
			"an id cannot be removed: uid and the previous id could not be distinguished",
			failed, with(failed, "spec.operationID", nil),
			"cannot be removed",
		},

		{
			"in progress: a later lock",
			with(running, "spec.relatedResources", []any{map[string]any{"resourceType": "a", "resourceID": "b"}}),
			with(running, "spec.relatedResources", []any{map[string]any{"resourceType": "a", "resourceID": "b", "lock": true}}),
			locked,
		},

		{"cancel before it was picked up", fresh, with(fresh, "spec.cancelRequested", true), ""},
		{"cancel in progress", running, with(running, "spec.cancelRequested", true), ""},
		{
			"cancel was false before", with(running, "spec.cancelRequested", false),
			with(running, "spec.cancelRequested", true), "",
		},
		{
			"cancel cannot be taken back", with(running, "spec.cancelRequested", true),
			with(running, "spec.cancelRequested", false), locked,
		},
		{"cancel cannot be removed", with(running, "spec.cancelRequested", true), running, locked},
		{"a new request is not cancelled", with(failed, "spec.cancelRequested", true), replaced, ""},

		{
			"a duration in another spelling is no change", with(running, "spec.timeout", "120m"),
			with(running, "spec.timeout", "2h0m0s"), "",
		},
		{"the default written out is no change", running, with(running, "spec.timeout", "2h"), ""},
		{"a longer timeout is a change", running, with(running, "spec.timeout", "3h"), locked},
		{"an empty list is no list", with(running, "spec.webhookIDs", []any{}), running, ""},
		{"an empty text is no text", running, with(running, "spec.correlationID", ""), ""},

		{
			"another resource is another Operation", failed, with(replaced, "spec.resourceID", "2"),
			"cannot change: an Operation is about one resource",
		},
		{
			"another type too", failed, with(replaced, "spec.resourceType", "b"),
			"cannot change: an Operation is about one resource",
		},

		{"no second outcome", failed, status(failed, "one", "Success"), "one outcome"},
		{"no way back", failed, status(failed, "one", "In Progress"), "one outcome"},
		{"the outcome cannot be removed", failed, with(failed, "status", nil), "one outcome"},
		{"the phase cannot be removed", failed, with(failed, "status.phase", nil), "one outcome"},
		{
			"an ended status may still get its notification", failed,
			with(failed, "status.notification", map[string]any{"webhookID": "n", "state": "Success"}), "",
		},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			old := clone(t, tt.old)
			check(t, a.create(t.Context(), old), "")
			check(t, a.update(t.Context(), clone(t, tt.obj), old), tt.want)
		})
	}
}

// A request of the greatest size can still be canceled: comparing it costs less than the API server's budget for rules.
func TestOperationOfGreatestSizeIsWithinBudget(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, v1alpha1.KindOperation)
	longest := func(n int) []any {
		return many(n, func(i int) any { return strings.Repeat("a", 250) + strconv.Itoa(i) })
	}
	headers := map[string]any{}
	for i := range 32 {
		headers["X-"+strconv.Itoa(i)] = strings.Repeat("v", 4096)
	}
	old := operation("spec.operationID", strings.Repeat("i", 255), "spec.webhookIDs", longest(32),
		"spec.compensateWebhookIDs", longest(32),
		"spec.requestObject.headers", headers,
		"spec.requestObject.resource", many(4096, func(int) any { return strings.Repeat("r", 32) }),
		"spec.relatedResources", many(64, func(int) any {
			return map[string]any{"resourceType": strings.Repeat("t", 128), "resourceID": strings.Repeat("i", 512), "lock": true}
		}))
	obj := clone(t, with(old, "spec.cancelRequested", true))
	check(t, a.create(t.Context(), old), "")
	check(t, a.update(t.Context(), obj, old), "")
}

// All fields of spec are immutable while an operation is in progress, alone and together with a cancellation. The test
// covers fields added later.
func TestOperationEveryFieldIsLocked(t *testing.T) {
	t.Parallel()
	a := newAdmission(t, v1alpha1.KindOperation)
	values := map[string]any{
		"operationID": "two", "operationType": "Create", "operationCategory": "x", "resourceType": "x", "resourceID": "x",
		"correlationID": "x",
		"webhookIDs":    []any{"x"}, "relatedResources": []any{map[string]any{"resourceType": "x", "resourceID": "x"}},
		"requestObject": map[string]any{"tenantID": "x"}, "execution": "Parallel", "timeout": "1h", "notifyWebhookID": "x",
		"compensateWebhookIDs": []any{"x"}, "ttlAfterFinished": "1h", "cancelRequested": true,
	}
	var fields, tried []string
	for name := range a.structural.Properties["spec"].Properties {
		fields = append(fields, name)
	}
	running := operation("status.operationID", "uid", "status.phase", "In Progress")
	for name, value := range values {
		tried = append(tried, name)
		for _, canceled := range []any{nil, true} {
			if name == "cancelRequested" {
				continue
			}
			old, obj := clone(t, running), clone(t, with(with(running, "spec."+name, value), "spec.cancelRequested", canceled))
			check(t, a.create(t.Context(), old), "")
			if errs := a.update(t.Context(), obj, old); len(errs) == 0 {
				t.Errorf("%s can change in progress, with cancelRequested %v", name, canceled)
			}
		}
	}
	slices.Sort(fields)
	slices.Sort(tried)
	if diff := cmp.Diff(fields, tried); diff != "" {
		t.Errorf("fields of spec (-) and fields tried (+):\n%s", diff)
	}
}

// BenchmarkOperationStatus validates the write of a status, as the API server does for each write of an executor.
func BenchmarkOperationStatus(b *testing.B) {
	a := newAdmission(b, v1alpha1.KindOperation)
	old := operation(
		"spec.operationID", "7d444840-9dc0-11d1-b245-5ffdce74fad2", "spec.operationCategory", "unregister",
		"spec.webhookIDs", []any{"sync"}, "spec.requestObject.resource", map[string]any{"name": "shop", "id": "1"},
		"spec.requestObject.tenantID", "tenant", "status.phase", "In Progress",
	)
	if errs := a.create(b.Context(), old); len(errs) > 0 {
		b.Fatal(errs.ToAggregate())
	}
	obj := clone(b, with(old, "status.phase", "Success"))
	b.ReportAllocs()
	for b.Loop() {
		if errs := a.common(b.Context(), obj, old); len(errs) > 0 {
			b.Fatal(errs.ToAggregate())
		}
	}
}
