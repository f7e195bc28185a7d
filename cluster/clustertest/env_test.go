package clustertest

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

type tests func() int

func (f tests) Run() int { return f() }

func TestEnvStartsNothingWithoutAUser(t *testing.T) {
	t.Parallel()
	var env Env
	if code := env.Main(tests(func() int { return 0 })).Run(); code != 0 || env.own != nil {
		t.Errorf("code %d, control plane %v, want none", code, env.own)
	}
}

func TestEnvVarOfAMissingFile(t *testing.T) {
	t.Setenv(EnvVar, t.TempDir())
	_, _, err := connect(cluster.Options{})
	if err == nil || !strings.Contains(err.Error(), EnvVar) {
		t.Errorf("got %v, want an error that names %s", err, EnvVar)
	}
}

// TestConnectionsEnd leaves a response unread, as a stream does for a moment after its end.
func TestConnectionsEnd(t *testing.T) {
	closed := make(chan struct{}, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the client sees a broken connection
		<-r.Context().Done()
		closed <- struct{}{}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: server.URL, InsecureSkipTLSVerify: true}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it"}
	config.CurrentContext = "it"
	dir := t.TempDir()
	if err := clientcmd.WriteToFile(*config, filepath.Join(dir, "kubeconfig")); err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvVar, dir)
	var env Env
	env.Main(tests(func() int {
		client, err := rest.HTTPClientFor(env.Config(t))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Get(server.URL) //nolint:noctx // it is left open
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", res.Proto)
		}
		return 0
	})).Run()
	select {
	case <-closed:
	case <-time.After(testlimit.Wait):
		t.Error("the connection is still open")
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		want   string
	}{
		"TestList":              {"the prefix Test is dropped", "t-list-"},
		"TestList/with_a_Limit": {"names of subtests have slashes and underscores", "t-list-with-a-limit-"},
		"Test":                  {"the name may become empty", "t--"},
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
