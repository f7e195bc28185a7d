package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fairlead-io/fairlead/internal/fair"
)

// authorizerFunc is an Authorizer whose callers are their tokens.
type authorizerFunc func(token, verb, namespace string) error

func (f authorizerFunc) Authorize(_ context.Context, token, verb, namespace string) error {
	return f(token, verb, namespace)
}

func (authorizerFunc) Caller(token string) string { return token }

// TestAdmission: the right is checked in the namespace of the request before any other problem is reported. No right is
// checked in a namespace that cannot exist.
func TestAdmission(t *testing.T) {
	t.Parallel()
	denied := &Problem{Status: http.StatusForbidden, Title: "Forbidden"}
	type result struct {
		Asked   []string // the rights that were checked
		Status  int      // status of the refusal; 0: none
		Found   string   // the namespace
		Party   fair.Party
		Problem int // status of the other problems; 0: none
	}
	for _, c := range []struct {
		reason, query, token string
		all                  bool
		others               []string
		want                 result
	}{
		{"the default namespace", "", "good", false, nil, result{
			Asked: []string{"good get own"}, Found: "own", Party: fair.Party{Member: "good"},
		}},
		{"with several namespaces, each is a group", "", "good", false, []string{"other"}, result{
			Asked: []string{"good get own"}, Found: "own", Party: fair.Party{Group: "own", Member: "good"},
		}},
		{"another namespace that is served", "namespace=other", "good", false, []string{"other"}, result{
			Asked: []string{"good get other"}, Found: "other", Party: fair.Party{Group: "other", Member: "good"},
		}},
		{"every namespace is served", "namespace=any", "good", true, nil, result{
			Asked: []string{"good get any"}, Found: "any", Party: fair.Party{Group: "any", Member: "good"},
		}},
		{
			"a caller without the right does not learn which namespaces are served", "namespace=other", "bad", false, nil,
			result{Asked: []string{"bad get other"}, Status: http.StatusForbidden, Found: "other"},
		},
		{"a caller with the right learns it", "namespace=other", "good", false, nil, result{
			Asked: []string{"good get other"}, Found: "other", Party: fair.Party{Member: "good"},
			Problem: http.StatusNotFound,
		}},
		{"a name that no namespace can have", "namespace=a%2Fb", "good", true, nil, result{
			Status: http.StatusNotFound, Found: "a/b",
		}},
		{"an unknown parameter", "stauts=FAILED", "good", false, nil, result{
			Asked: []string{"good get own"}, Found: "own", Party: fair.Party{Member: "good"},
			Problem: http.StatusBadRequest,
		}},
		{"a known parameter", "status=FAILED", "good", false, nil, result{
			Asked: []string{"good get own"}, Found: "own", Party: fair.Party{Member: "good"},
		}},
	} {
		var got result
		d := &admitter{
			namespace: "own", others: c.others, all: c.all, shared: c.all || c.others != nil,
			authorizer: authorizerFunc(func(token, verb, namespace string) error {
				got.Asked = append(got.Asked, token+" "+verb+" "+namespace)
				if token != "good" {
					return denied
				}
				return nil
			}),
		}
		r := httptest.NewRequest(http.MethodGet, "/operations?"+c.query, nil)
		r.Header.Set("Authorization", "Bearer "+c.token)
		a, err := d.admit(r, "get", "status")
		statusOf := func(err error) int {
			var p *Problem
			if errors.As(err, &p) {
				return p.Status
			}
			return 0
		}
		got.Found, got.Status = a.namespace, statusOf(err)
		if err == nil {
			got.Party, got.Problem = a.party, statusOf(a.wrong.problem())
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}
