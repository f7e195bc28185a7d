package controllers_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/simulate/internal/controllers/controllerstest"
)

var update = flag.Bool("update", false, "write the states after each step to testdata; then run the test in e2e")

// The states after each step of each script are those of the real controllers: the test in directory e2e compares them
// with the same files. They do not depend on the order in which the controllers act.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, script := range controllerstest.Scripts() {
		t.Run(script.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runScript(t, script, always(time.Millisecond), *update) })
			r := rand.New(rand.NewPCG(1, 0))
			random := func(string) time.Duration { return time.Duration(r.Int64N(int64(100 * time.Millisecond))) }
			synctest.Test(t, func(t *testing.T) { runScript(t, script, random, false) })
		})
	}
}

func runScript(t *testing.T, script controllerstest.Script, delay func(string) time.Duration, updates bool) {
	m := controllerstest.Start(t, delay)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "script-namespace"}}
	if _, err := m.Client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	m.Settle()
	s := &controllerstest.Session{Interface: m.Client, Ctx: t.Context(), Namespace: ns.Name}
	var got []string
	for i, step := range script.Steps {
		if step(s); s.Err != nil {
			t.Fatalf("step %d: %v", i, s.Err)
		}
		m.Settle()
		text, err := controllerstest.Dump(t.Context(), m.Client, ns.Name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text)
	}
	file := controllerstest.File("testdata", script)
	if updates {
		if err := os.WriteFile(file, []byte(controllerstest.Join(got)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := controllerstest.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range script.Steps {
		if i >= len(want) {
			t.Fatalf("%s has %d states", file, len(want))
		}
		if diff := cmp.Diff(strings.Split(want[i], "\n"), strings.Split(got[i], "\n")); diff != "" {
			t.Errorf("step %d (-want +got):\n%s", i, diff)
		}
	}
}
