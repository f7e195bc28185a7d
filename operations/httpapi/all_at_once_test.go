package httpapi_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

// TestAllAtOnce: one answer names everything that is wrong with a request.
func TestAllAtOnce(t *testing.T) {
	a := setup(t, anonymous)
	tests := []struct {
		reason, method, path, body string
		headers                    []string
		status                     int
		want                       []string
	}{
		{
			reason: "An unreadable part does not hide problems of the rest.", method: "POST", path: "/operations",
			body: `{"operationType":"Drop","resourceType":5,"webhookIDs":["A b",7,"ok","ok"],"timeout":"soon","ttlAfterFinished":"-1s","whatever":1,
				"relatedResources":[{"resourceType":"db","resourceID":true,"lok":1},{"resourceType":""},"db/7"],
				"requestObject":{"tenant":"x","tenantID":1,"headers":{"A":1,"Cookie":"c"}},"execution":"Fast","cancelRequested":"yes"}`,
			status: 400,
			want: []string{
				"spec.cancelRequested", "spec.relatedResources[0].lok", "spec.relatedResources[0].resourceID",
				"spec.relatedResources[2]",
				"spec.requestObject.headers[A]", "spec.requestObject.tenant", "spec.requestObject.tenantID", "spec.resourceType",
				"spec.timeout", "spec.webhookIDs[1]", "spec.whatever",
				"spec.operationType", "spec.resourceID", "spec.relatedResources[1].resourceType",
				"spec.relatedResources[1].resourceID",
				"spec.webhookIDs[0]", "spec.webhookIDs[3]", "spec.execution", "spec.ttlAfterFinished",
				"spec.requestObject.headers[Cookie]",
			},
		},
		{
			reason: "Nor do headers hide the body, or the namespace either of them.", method: "POST",
			path: "/operations?namespace=elsewhere",
			body: `{"operationID":"one","operationType":"Delete","timeout":"0s"}`, headers: []string{"Idempotency-Key", "two"},
			status: 400, want: []string{
				"query namespace", "header Idempotency-Key", "spec.resourceType", "spec.resourceID",
				"spec.timeout",
			},
		},
		{
			reason: "A request that is only invalid gets 422.", method: "POST", path: "/operations",
			body: `{"operationID":"one","operationType":"Delete"}`, headers: []string{"Idempotency-Key", "two"},
			status: 422, want: []string{"header Idempotency-Key", "spec.resourceType", "spec.resourceID"},
		},
		{
			reason: "Every query parameter is checked.", method: "GET",
			path:   "/operations?limit=none&status=done&continue=%21&related=db&namespace=elsewhere",
			status: 400, want: []string{"query namespace", "query status", "query limit", "query continue", "query related"},
		},
		{
			reason: "A namespace alone is not found.", method: "GET", path: "/operations?namespace=elsewhere", status: 404,
			want: []string{"query namespace"},
		},
		{
			reason: "So does a callback.", method: "POST", path: "/callbacks/good", body: `{"status":1,"error":[]}`, status: 400,
			want: []string{"callback.error", "callback.status"},
		},
		{
			reason: "Its other members are its own.", method: "POST", path: "/callbacks/good",
			body: `{"status":"maybe","error":{},"more":1}`, status: 400,
			want: []string{"callback.error", "callback.status"},
		},
	}
	for _, tc := range tests {
		got := a.do("", tc.method, tc.path, tc.body, tc.headers...)
		var p httpapi.Problem
		if err := json.Unmarshal([]byte(got.body), &p); err != nil ||
			got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s It is not a problem: %v, %s", tc.reason, err, got.body)
		}
		var fields []string
		for _, f := range p.Fields {
			fields = append(fields, f.Field)
		}
		if diff := cmp.Diff(tc.want, fields); diff != "" || got.status != tc.status {
			t.Errorf("%s %d, -want +got:\n%s\n%s", tc.reason, got.status, diff, p.Detail)
		}
	}
}
