package call

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// TestHolds decides whether a live object shows that a write was executed. If that is uncertain, the answer is no. A
// wrong no makes the caller look again, and a wrong yes loses the write.
func TestHolds(t *testing.T) {
	t.Parallel()
	const (
		create = VerbCreate
		update = VerbUpdate
		patch  = VerbPatch
	)
	strategic := types.StrategicMergePatchType
	for _, tc := range []struct {
		reason     string
		verb       Verb
		patch      types.PatchType
		sub        string
		sent, live string
		want       bool
	}{
		{
			"a created object may have gained fields", create, "", "", `{"spec":{"a":1}}`,
			`{"metadata":{"uid":"u"},"spec":{"a":1,"b":2}}`, true,
		},
		{
			"an object that is being deleted existed before", create, "", "", `{"spec":{"a":1}}`,
			`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"a":1}}`, false,
		},
		{"but it has all written fields", create, "", "", `{"spec":{"a":1}}`, `{"spec":{"a":2}}`, false},
		{
			"an empty string differs from another one", create, "", "", `{"data":{"k":""}}`, `{"data":{"k":"other"}}`,
			false,
		},
		{"and equals an absent one", create, "", "", `{"data":{"k":""}}`, `{"data":{}}`, true},
		{"false is a value", create, "", "", `{"spec":{"automount":false}}`, `{"spec":{}}`, false},
		{
			"fields that the server sets may be empty in the request", create, "", "",
			`{"metadata":{"creationTimestamp":null},"spec":{"strategy":{}},"status":{}}`,
			`{"metadata":{"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"strategy":{"type":"RollingUpdate"}}}`, true,
		},
		{
			"admission puts list elements between", create, "", "", `{"l":[{"name":"a"},{"name":"c"}]}`,
			`{"l":[{"name":"a","x":1},{"name":"b"},{"name":"c"}]}`, true,
		},
		{"but does not reorder them", create, "", "", `{"l":["a","b"]}`, `{"l":["b","a"]}`, false},

		{
			"an executed update", update, "", "",
			`{"kind":"T","metadata":{"name":"a","resourceVersion":"6"},"spec":{"a":1}}`,
			`{"kind":"T","apiVersion":"v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7","generation":2,"managedFields":[{}]},"spec":{"a":1}}`, true,
		},
		{
			"one that removes a finalizer, which still exists", update, "", "", `{"metadata":{"resourceVersion":"6"},"spec":{}}`,
			`{"metadata":{"resourceVersion":"7","finalizers":["f"]},"spec":{}}`, false,
		},
		{
			"one that empties a list", update, "", "", `{"metadata":{"finalizers":[]}}`, `{"metadata":{"finalizers":["f"]}}`,
			false,
		},
		{"one that removes a key", update, "", "", `{"data":{"a":"1"}}`, `{"data":{"a":"1","b":"2"}}`, false},
		{"one that removes an empty key", update, "", "", `{"data":{"a":"1"}}`, `{"data":{"a":"1","b":""}}`, false},
		{"one that empties a value", update, "", "", `{"data":{"a":""}}`, `{"data":{"a":"1"}}`, false},
		{"one that sets a boolean to false", update, "", "", `{"spec":{"automount":false}}`, `{"spec":{}}`, false},
		{
			"one that empties a selector", update, "", "", `{"spec":{"from":[{"namespaceSelector":{}}]}}`,
			`{"spec":{"from":[{}]}}`, false,
		},
		{
			"one that removes an element of a list", update, "", "", `{"spec":{"args":["a"]}}`, `{"spec":{"args":["a","b"]}}`,
			false,
		},
		{
			"an object that is being deleted can be updated", update, "", "",
			`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"a":1}}`,
			`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":0},"spec":{"a":1}}`, true,
		},
		{"null is nothing", update, "", "", `{"spec":{"a":1,"b":null}}`, `{"spec":{"a":1,"c":null}}`, true},
		{
			"another object of the same name", update, "", "", `{"metadata":{"uid":"u1"},"spec":{}}`,
			`{"metadata":{"uid":"u2"},"spec":{}}`, false,
		},
		{
			"a status that was not written belongs to others", update, "", "", `{"spec":{"a":1},"status":{}}`,
			`{"spec":{"a":1},"status":{"ready":true}}`, true,
		},
		{
			"a written status must be there: the kind may have no status subresource", update, "", "",
			`{"spec":{"a":1},"status":{"ready":true}}`, `{"spec":{"a":1},"status":{"ready":false}}`, false,
		},
		{
			"an update of the status changes nothing else", update, "", "status",
			`{"metadata":{"labels":{"x":"y"}},"spec":{"a":2},"status":{"ready":true}}`,
			`{"metadata":{"uid":"u"},"spec":{"a":1},"status":{"ready":true}}`, true,
		},
		{
			"one that removes a condition", update, "", "status", `{"status":{"conditions":[]}}`,
			`{"status":{"conditions":[{"type":"Ready"}]}}`, false,
		},
		{"one that removes all", update, "", "status", `{"spec":{}}`, `{"spec":{},"status":{"ready":true}}`, false},
		{
			"one of another object with the same name", update, "", "status", `{"metadata":{"uid":"u1"},"status":{"a":1}}`,
			`{"metadata":{"uid":"u2"},"status":{"a":1}}`, false,
		},

		{
			"an executed strategic patch", patch, strategic, "", `{"metadata":{"resourceVersion":"6"},"spec":{"a":1}}`,
			`{"metadata":{"resourceVersion":"7"},"spec":{"a":1,"b":2}}`, true,
		},
		{
			"one that removes a field is uncertain",
			patch, strategic, "", `{"spec":{"a":1,"b":null}}`, `{"spec":{"a":1}}`, false,
		},
		{
			"so is one with a list, which may be replaced or merged", patch, strategic, "", `{"spec":{"args":["a"]}}`,
			`{"spec":{"args":["a","b"]}}`, false,
		},
		{"so is one that empties a list", patch, strategic, "", `{"spec":{"args":[]}}`, `{"spec":{"args":["a"]}}`, false},
		{"unless the list is equal", patch, strategic, "", `{"spec":{"args":["a"]}}`, `{"spec":{"args":["a"]}}`, true},
		{"one that empties a value", patch, strategic, "", `{"data":{"a":""}}`, `{"data":{"a":"1"}}`, false},
		{
			"a json patch is uncertain", patch, types.JSONPatchType, "", `[{"op":"add","path":"/a","value":1}]`, `{"a":1}`,
			false,
		},

		{"a value that is not an object is uncertain", create, "", "", `{"a":1}`, `<html>`, false},
	} {
		r := &Request{Verb: tc.verb, PatchType: tc.patch, Subresource: tc.sub}
		if got := shows(r, []byte(tc.sent), []byte(tc.live)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}

// An apply was executed if the live object has all of it, and the manager owns nothing else.
func TestHoldsApply(t *testing.T) {
	t.Parallel()
	const live = `{"kind":"T","metadata":{"name":"a","uid":"u","labels":{"a":"1","b":"2"},"managedFields":[
			{"manager":"other","operation":"Update","fieldsV1":{"f:metadata":{"f:labels":{"f:b":{}}}}},
			{"manager":"us","operation":"Apply","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:finalizers":{"v:\"x\"":{}}},
				"f:spec":{"f:args":{},"f:ports":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:name":{},"f:port":{}}}}}},
			{"manager":"us","operation":"Apply","subresource":"status","fieldsV1":{"f:status":{"f:ready":{}}}}],"finalizers":["x","y"]},
		"spec":{"args":["-v"],"ports":[{"port":80,"protocol":"TCP","name":"web"},{"port":81,"protocol":"TCP"}]},"status":{"ready":true,"n":1}}`
	const whole = `{"kind":"T","metadata":{"name":"a","resourceVersion":"6","labels":{"a":"1"},"finalizers":["x"]},"spec":{"args":["-v"],"ports":[{"port":80,"name":"web"}]}}`
	for _, tc := range []struct {
		reason             string
		manager, sub, sent string
		want               bool
	}{
		{"all of it, and no more", "us", "", whole, true},
		{
			"a removed label is still owned", "us", "",
			`{"metadata":{"name":"a","finalizers":["x"]},"spec":{"args":["-v"],"ports":[{"port":80,"name":"web"}]}}`, false,
		},
		{
			"so is a finalizer", "us", "",
			`{"metadata":{"name":"a","labels":{"a":"1"}},"spec":{"args":["-v"],"ports":[{"port":80,"name":"web"}]}}`, false,
		},
		{
			"or a list element", "us", "",
			`{"metadata":{"name":"a","labels":{"a":"1"},"finalizers":["x"]},"spec":{"args":["-v"],"ports":[]}}`, false,
		},
		{
			"or a field of one", "us", "",
			`{"metadata":{"name":"a","labels":{"a":"1"},"finalizers":["x"]},"spec":{"args":["-v"],"ports":[{"port":80}]}}`,
			false,
		},
		{
			"an atomic list is compared as a whole", "us", "",
			`{"metadata":{"name":"a","labels":{"a":"1"},"finalizers":["x"]},"spec":{"args":[],"ports":[{"port":80,"name":"web"}]}}`, false,
		},
		{
			"a field that does not exist yet", "us", "",
			`{"metadata":{"name":"a","labels":{"a":"1","c":"3"},"finalizers":["x"]},"spec":{"args":["-v"],"ports":[{"port":80,"name":"web"}]}}`, false,
		},
		{"a manager that has applied nothing", "them", "", whole, false},
		{"one that only updated", "other", "", `{"metadata":{"labels":{"b":"2"}}}`, false},
		{"an apply of the status", "us", "status", `{"metadata":{"name":"a"},"status":{"ready":true}}`, true},
		{"that removes owned fields", "us", "status", `{"metadata":{"name":"a"},"status":{"n":1}}`, false},
	} {
		r := &Request{Verb: VerbApply, Subresource: tc.sub, Query: map[string][]string{"fieldManager": {tc.manager}}}
		if got := shows(r, []byte(tc.sent), []byte(live)); got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.reason, got, tc.want)
		}
	}
}
