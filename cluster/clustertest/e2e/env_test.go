package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
)

// tests is a [clustertest.Runner].
type tests func() int

func (f tests) Run() int { return f() }

// directories returns the directories of the control planes in a temporary directory.
func directories(t *testing.T, temp string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(temp, "*", "kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files
}

func TestEnvStartsAndStopsItsOwn(t *testing.T) {
	t.Setenv(clustertest.EnvVar, "")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var env clustertest.Env
	var dirs []string
	code := env.Main(tests(func() int {
		first, second := env.Config(t), env.Config(t)
		if first == second || first.Host != second.Host {
			t.Error("two calls give the same configuration to change, or two control planes")
		}
		dirs = directories(t, temp)
		env.Namespace(t)
		return 3
	})).Run()
	if code != 3 {
		t.Errorf("exit code %d, want that of the tests", code)
	}
	if len(dirs) != 1 {
		t.Errorf("control planes during the tests: %v, want one", dirs)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("directory after the tests: got %v, want none", err)
		}
	}
}

func TestEnvJoinsTheSharedOne(t *testing.T) {
	shared := clustertest.Start(t, cluster.Options{})
	t.Setenv(clustertest.EnvVar, shared.Dir())
	var env clustertest.Env
	env.Main(tests(func() int {
		if got := env.Config(t).Host; got != shared.Config().Host {
			t.Errorf("host %s, want the shared control plane's %s", got, shared.Config().Host)
		}
		env.Namespace(t)
		return 0
	})).Run()
	if err := shared.Err(); err != nil {
		t.Error(err)
	}
	select {
	case <-shared.Done():
		t.Error("a run that joined the shared control plane stopped it")
	default:
	}
}
