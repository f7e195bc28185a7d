package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/operations/httpapi"
)

const deletion = `{"operationType":"Delete","resourceType":"app","resourceID":"1"}`

func TestRights(t *testing.T) {
	a := setup(t, nil, nil)
	if got := a.do("all", "POST", "/operations", deletion); got.Code != http.StatusAccepted {
		t.Fatalf("schedule: %d %s", got.Code, got.Body)
	}
	tests := []struct {
		user, method, path string
		want               int
		reason             string
	}{
		{"", "GET", "/operations/app/1", 401, "no token"},
		{"forged", "GET", "/operations/app/1", 401, "a token that the cluster does not know"},
		{"nobody", "GET", "/operations/app/1", 403, "no right"},
		{"nobody", "GET", "/operations/app/2", 403, "no right, and no information about existing objects"},
		{"nobody", "GET", "/operations?namespace=" + a.other, 403, "no right in a namespace that is not served"},
		{"all", "GET", "/operations?namespace=" + a.other, 404, "a right in a namespace that is not served"},
		{"reader", "GET", "/operations/app/1", 200, "a reader reads"},
		{"reader", "GET", "/operations/app/2", 404, "a reader learns that it does not exist"},
		{"reader", "GET", "/operations", 200, "a reader lists"},
		{"reader", "POST", "/operations", 403, "a reader does not schedule"},
		{"reader", "POST", "/operations/app/1:cancel", 403, "a reader does not cancel"},
		{"nobody", "GET", "/operations/app/1/events", 403, "events are read"},
		{"", "GET", "/openapi.json", 200, "the description is public"},
		{"", "GET", "/nothing", 404, "no such path"},
		{"", "DELETE", "/operations/app/1", 405, "no such method"},
	}
	for _, tc := range tests {
		if got := a.do(tc.user, tc.method, tc.path, deletion); got.Code != tc.want {
			t.Errorf("%s: %s %s as %q is %d, want %d: %s", tc.reason, tc.method, tc.path, tc.user, got.Code, tc.want, got.Body)
		}
	}
}

func TestProtect(t *testing.T) {
	a := setup(t, nil, nil)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "all keys") })
	a.mayDebug("debugger")
	for name, namespaces := range map[string][]string{"Every": nil, "Some": {a.namespace, a.other}} {
		for user, want := range map[string]int{
			"": 401, "forged": 401, "nobody": 403, "debugger": 200, "reader": map[string]int{"Every": 403, "Some": 200}[name],
		} {
			protected := httpapi.Protect(page, httpapi.NewKubernetes(a.calls), namespaces...)
			w := a.send(protected, a.tokens[user], "GET", "/debug/flows", "")
			if w.Code != want || strings.Contains(w.Body.String(), "all keys") != (want == 200) {
				t.Errorf("%s namespace as %q: %d %s", name, user, w.Code, w.Body)
			}
		}
	}
}

// TestAudiences: a token is accepted only for the audiences for which it was issued.
func TestAudiences(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		audiences []string
		want      map[string]int
	}{
		"None": {
			"Without audiences those of the API server apply.", nil,
			map[string]int{"api": 200, "fairlead": 401, "other": 401},
		},
		"Own": {
			"With an own audience only its tokens are accepted.",
			[]string{"fairlead"},
			map[string]int{"api": 401, "fairlead": 200, "other": 401},
		},
		"Both": {
			"Both are accepted while callers change.",
			[]string{"fairlead", ""},
			map[string]int{"api": 200, "fairlead": 200, "other": 401},
		},
		"Replaced": {
			"An audience can replace another one.",
			[]string{"fairlead", "other"},
			map[string]int{"api": 401, "fairlead": 200, "other": 200},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := setup(t, tc.audiences, nil)
			got := map[string]int{}
			for audience := range tc.want {
				request := &authenticationv1.TokenRequest{}
				if audience != "api" {
					request.Spec.Audiences = []string{audience}
				}
				token, err := a.clients.CoreV1().ServiceAccounts(a.namespace).CreateToken(a.ctx, "reader", request,
					metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got[audience] = a.send(a.handler, token.Status.Token, "GET", "/operations", "").Code
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEveryNamespace(t *testing.T) {
	a := setup(t, nil, func(o *httpapi.Options) { o.Authorizer, o.All = httpapi.Anonymous{}, true })
	tests := map[string]struct {
		reason, namespace string
		want              int
	}{
		"Other":   {"Every namespace is served.", a.other, http.StatusAccepted},
		"Missing": {"A missing namespace is not an error of the API server.", "no-such", http.StatusNotFound},
		"Path":    {"A name is not a path.", "..", http.StatusNotFound},
		"Deep":    {"Neither is this one.", "a%2F..%2Fb", http.StatusNotFound},
	}
	for name, tc := range tests {
		if got := a.do("", "POST", "/operations?namespace="+tc.namespace, deletion); got.Code != tc.want {
			t.Errorf("%s: %s %d %s", name, tc.reason, got.Code, got.Body)
		}
	}
}
