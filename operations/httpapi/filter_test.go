package httpapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestFilters: a filter selects the matching operations. The server refuses an unknown filter, which would otherwise
// select everything.
func TestFilters(t *testing.T) {
	a := setup(t, anonymous)
	for _, body := range []string{
		`{"operationType":"Delete","operationCategory":"clean","correlationID":"r1","resourceType":"app","resourceID":"1","webhookIDs":["w"]}`,
		`{"operationType":"Update","operationCategory":"move","correlationID":"r2","resourceType":"app","resourceID":"2","webhookIDs":["w"]}`,
		`{"operationType":"Delete","operationCategory":"move","correlationID":"r3","resourceType":"db","resourceID":"3","webhookIDs":["w"]}`,
	} {
		if got := a.do("", "POST", "/operations", body); got.status != http.StatusAccepted {
			t.Fatalf("%+v", got)
		}
	}
	a.finish("db-3", v1alpha1.PhaseFailed)
	list := func(query string) (ids string, got answer) {
		got = a.do("", "GET", "/operations"+query, "")
		var page httpapi.Page
		if err := json.Unmarshal([]byte(got.body), &page); err != nil {
			t.Fatal(err)
		}
		for _, v := range page.Items {
			ids += v.ResourceID
		}
		return ids, got
	}
	a.eventually(func() bool { ids, _ := list("?status=FAILED"); return ids == "3" })
	a.eventually(func() bool { ids, _ := list(""); return ids == "123" })
	for query, want := range map[string]string{
		"?category=move": "23", "?type=Delete": "13", "?correlationID=r2": "2", "?phase=Failed": "3",
		"?phase=In%20Progress": "12", "?phase=in_progress": "12", "?category=move&type=Delete": "3", "?category=none": "",
		"?resourceType=app&category=move": "2", "?category=": "123",
	} {
		if ids, got := list(query); got.status != http.StatusOK || ids != want {
			t.Errorf("%s: %d %q, want %q", query, got.status, ids, want)
		}
	}
	for query, want := range map[string]string{
		"?categroy=move":             `query "categroy" is unknown; known are namespace, category, continue`,
		"?category=a&category=b":     "query category is given more than once",
		"?phase=Done":                "query phase must be In Progress, Success or Failed",
		"?type=Drop":                 "query type must be Create, Update or Delete",
		"?category=%zz":              "query string is malformed",
		"?limit=0&colour=red&type=x": `query "colour" is unknown`,
	} {
		got := a.do("", "GET", "/operations"+query, "")
		if got.status != http.StatusBadRequest || !strings.Contains(got.body, jsonText(t, want)) {
			t.Errorf("%s: %d %s, want %q", query, got.status, got.body, want)
		}
	}
	for _, request := range [][2]string{
		{"POST", "/operations?resourceType=app"},
		{"GET", "/operations/app/1?watch=true"},
		{"GET", "/operations/app/1/events?after=1"},
		{"POST", "/operations/app/1:cancel?reason=x"},
	} {
		got := a.do("", request[0], request[1], "{}")
		if !strings.Contains(got.body, "is unknown; known are namespace") || got.status < http.StatusBadRequest {
			t.Errorf("%v: %d %s", request, got.status, got.body)
		}
	}
}

// jsonText returns a text in the form that it has within JSON.
func jsonText(t *testing.T, text string) string {
	t.Helper()
	raw, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(raw), `"`)
}
