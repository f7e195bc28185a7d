package console_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead-io/fairlead/console"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testbed/consolebed"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	operationsconsole "github.com/fairlead-io/fairlead/operations/console"
	"github.com/fairlead-io/fairlead/operations/httpapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newWorld returns a world on the in-memory API server, for tests that need no rights of users.
func newWorld(t *testing.T, change func(*console.Options)) *consolebed.World {
	t.Helper()
	resources := apiserver.DefaultResources()
	for _, crd := range v1alpha1.CRDs() {
		names := crd.Spec.Names
		resources = append(resources, apiserver.Resource{
			Group: crd.Spec.Group, Version: v1alpha1.GroupVersion.Version, Resource: names.Plural, Kind: names.Kind,
			Singular: names.Singular, ShortNames: names.ShortNames, Namespaced: true, Subresources: []string{"status"},
		})
	}
	server, err := apiserver.New(apiserver.Options{Resources: resources})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return consolebed.New(t, server.Config(), "prod", change)
}

// change changes the section of operations.
func change(o *console.Options, how func(*operationsconsole.Section)) {
	s := o.Sections[0].(operationsconsole.Section)
	how(&s)
	o.Sections[0] = s
}

func noAuth(o *console.Options) { o.InsecureNoAuth = true }

// readers maps tokens to rights. Each reader sees pages about the program.
type readers map[string]func(httpapi.Access) bool

func (all readers) Caller(token string) string { return token }

func (all readers) May(_ context.Context, token string, a httpapi.Access) error {
	if may := all[token]; may != nil && (a.Path != "" || may(a)) {
		return nil
	}
	return &httpapi.Problem{Status: http.StatusForbidden}
}

// TestMistakes: New refuses an invalid section.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for want, how := range map[string]func(*operationsconsole.Section){
		"are required":              func(s *operationsconsole.Section) { s.Executor = nil },
		"is not the URL of a trace": func(s *operationsconsole.Section) { s.TraceURL = "https://traces.example.com/" },
	} {
		newWorld(t, func(o *console.Options) {
			bad := *o
			bad.InsecureNoAuth, bad.Sections = true, slices.Clone(o.Sections)
			change(&bad, how)
			if _, err := console.New(bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		})
	}
}
