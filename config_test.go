package fairlead_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/fairlead-io/fairlead"
)

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig := func(name, host string) string {
		c := api.NewConfig()
		c.Clusters["c"], c.AuthInfos["u"] = &api.Cluster{Server: "https://" + host}, &api.AuthInfo{Token: "t"}
		c.Contexts["x"], c.CurrentContext = &api.Context{Cluster: "c", AuthInfo: "u"}, "x"
		text, err := clientcmd.Write(*c)
		if err != nil {
			t.Fatal(err)
		}
		return write(name, string(text))
	}
	flag, env := kubeconfig("flag", "flag"), kubeconfig("env", "env")
	kubeconfig("home/.kube/config", "home")
	nowhere := filepath.Join(dir, "nowhere")
	for _, tc := range []struct {
		reason               string
		path, env, pod, home string
		want                 string // host
		fails                string
	}{
		{"the named file comes first", flag, env, "10.0.0.1", "home", "https://flag", ""},
		{"then KUBECONFIG", "", env, "10.0.0.1", "home", "https://env", ""},
		{
			"of several files some may be missing", "", nowhere + string(filepath.ListSeparator) + env, "", "home",
			"https://env", "",
		},
		{"then the file of the user", "", "", "", "home", "https://home", ""},
		{"a named file that is missing", nowhere, env, "", "home", "", nowhere +
			" does not exist or names no server"},
		{"a KUBECONFIG that is missing", "", nowhere, "10.0.0.1", "home", "", nowhere + " does not exist or names no server"},
		{"no file at all", "", "", "", "nowhere", "", "cannot find an API server"},
		{"not a kubeconfig", write("bad", "a: ["), "", "", "home", "", "cannot read a kubeconfig"},
		{
			"no context of that name", write("lost", "apiVersion: v1\nkind: Config\ncurrent-context: gone\n"), "", "", "home",
			"", "gone",
		},
	} {
		t.Setenv("KUBECONFIG", tc.env)
		t.Setenv("KUBERNETES_SERVICE_HOST", tc.pod)
		t.Setenv("KUBERNETES_SERVICE_PORT", "443")
		t.Setenv("HOME", filepath.Join(dir, tc.home))
		got, err := fairlead.Config(tc.path)
		switch {
		case tc.fails == "" && (err != nil || got.Host != tc.want || got.BearerToken != "t"):
			t.Errorf("%s: got %v, %v; want %s", tc.reason, got, err, tc.want)
		case tc.fails != "" && (err == nil || !strings.Contains(err.Error(), tc.fails)):
			t.Errorf("%s: got %v, want an error with %q", tc.reason, err, tc.fails)
		}
	}
	// In a pod its service account comes before the user's file. The files of the account may be missing here.
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	t.Setenv("HOME", filepath.Join(dir, "home"))
	got, err := fairlead.Config("")
	if err == nil && got.Host != "https://10.0.0.1:443" ||
		err != nil && !strings.Contains(err.Error(), "cannot use the service account of this pod") {
		t.Errorf("in a pod: got %v, %v", got, err)
	}
}
