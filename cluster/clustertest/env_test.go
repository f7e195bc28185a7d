package clustertest

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fairlead-io/fairlead/cluster"
)

type tests func() int

func (f tests) Run() int { return f() }

func TestEnvStartsNothingThatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	var env Env
	if code := env.Main(tests(func() int { return 0 })).Run(); code != 0 || env.own != nil {
		t.Errorf("code %d, control plane %v, want none", code, env.own)
	}
}

func TestEnvVarThatLeadsNowhere(t *testing.T) {
	t.Setenv(EnvVar, t.TempDir())
	_, _, err := connect(cluster.Options{})
	if err == nil || !strings.Contains(err.Error(), EnvVar) {
		t.Errorf("got %v, want an error that names %s", err, EnvVar)
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		want   string
	}{
		"TestList":              {"the usual prefix of tests says nothing", "t-list-"},
		"TestList/with_a_Limit": {"names of subtests have slashes and underscores", "t-list-with-a-limit-"},
		"Test":                  {"nothing may be left", "t--"},
		"BenchmarkÄrger":        {"other letters are not allowed", "t-benchmark-rger-"},
		"Test" + strings.Repeat("x", 100): {
			"the server appends five characters, and 63 are allowed", "t-" + strings.Repeat("x", 40) + "-",
		},
	}
	for name, tc := range tests {
		got := prefix(name)
		if got != tc.want {
			t.Errorf("%s: prefix of %s is %s, want %s", tc.reason, name, got, tc.want)
		}
		if problems := validation.IsDNS1123Label(got + "abcde"); len(problems) > 0 {
			t.Errorf("%s: %s: %v", tc.reason, got, problems)
		}
	}
}
