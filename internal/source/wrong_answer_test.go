package source

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An answer of another kind, or an error event without a valid status, is a protocol error. It does not count as a
// refusal by the server.
func TestWrongAnswers(t *testing.T) {
	t.Parallel()
	jsonEvent := func(object string) []byte { return []byte(`{"type":"ERROR","object":` + object + "}\n") }
	protoEvent := func(kind string, object interface{ Marshal() ([]byte, error) }) []byte {
		return protoFrame(t, "ERROR", wrap(t, "v1", kind, marshal(t, object)))
	}
	pod := protoPods(1).Items[0]
	for reason, c := range map[string]struct {
		dec  decoder
		body []byte
	}{
		"an error event with a ConfigMap": {&jsonWatch{}, jsonEvent(small)},
		"an error event with a Pod": {
			&jsonWatch{},
			jsonEvent(`{"kind":"Pod","apiVersion":"v1","status":{"phase":"Failed"}}`),
		},
		"an error event with another kind that has the fields of a status": {
			&jsonWatch{}, jsonEvent(`{"kind":"Refusal","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`),
		},
		"an error event with an empty object": {&jsonWatch{}, jsonEvent(`{}`)},
		"an error event with an empty status": {&jsonWatch{}, jsonEvent(`{"kind":"Status","apiVersion":"v1"}`)},
		"an error event with a status of success": {
			&jsonWatch{},
			jsonEvent(`{"kind":"Status","status":"Success","code":200}`),
		},
		"an error event with an unknown reason": {
			&jsonWatch{},
			jsonEvent(`{"kind":"Status","status":"Failure","reason":"Odd"}`),
		},
		"an error event with a Pod in protobuf":           {&protoWatch{}, protoEvent("Pod", &pod)},
		"an error event with an empty status in protobuf": {&protoWatch{}, protoEvent("Status", &metav1.Status{})},
		"a change to a status in protobuf": {
			&protoWatch{}, protoFrame(t, "ADDED", wrap(t, "v1", "Status", marshal(t, &metav1.Status{Code: 410}))),
		},
		"a watch that is a list": {
			&jsonWatch{},
			[]byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[]}`),
		},
		"a watch that is an empty status":         {&jsonWatch{}, []byte(`{"kind":"Status","apiVersion":"v1"}`)},
		"a list that is an empty status":          {&jsonList{}, []byte(`{"kind":"Status","apiVersion":"v1"}`)},
		"a list that is a status of code 200":     {&jsonList{}, []byte(`{"kind":"Status","apiVersion":"v1","code":200}`)},
		"a list that is a ConfigMap":              {&jsonList{}, []byte(small)},
		"a list that is an empty protobuf status": {&protoList{}, wrap(t, "v1", "Status", marshal(t, &metav1.Status{}))},
		"a list that is an object, in protobuf":   {&protoList{}, wrap(t, "v1", "Pod", marshal(t, &pod))},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			got := decodeAll(t, c.dec, chunked(c.body, 1<<20))
			if slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "server answered") }) ||
				!slices.ContainsFunc(got, func(s string) bool {
					return strings.HasPrefix(s, "PROTOCOL ") || strings.HasPrefix(s, "ERROR cannot understand answer: ")
				}) {
				t.Errorf("got %q, want an error of the protocol", got)
			}
		})
	}
}
