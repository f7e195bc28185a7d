package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/call"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/operations/executor"
	"github.com/fairlead-io/fairlead/operations/webhook"
)

// mortal describes a process that dies in a given way.
type mortal struct {
	Host      string
	TLS       tlsFiles
	Token     string
	Namespace string
	Dir       string        // directory of the crash log
	Phase     webhook.Phase // in which it dies, computing for the Webhook bomb
	Death     string
	Frozen    bool // with a clock that stands still
}

type tlsFiles struct {
	CAFile, CertFile, KeyFile string
	CAData, CertData, KeyData []byte
}

const mortalVar = "FAIRLEAD_TEST_MORTAL"

// deadly is a witness that kills its process in a given phase.
type deadly struct {
	*executor.CrashLog
	mortal
}

func (d deadly) Begin(w *webhook.Definition, p webhook.Phase, alone bool) func() {
	end := d.CrashLog.Begin(w, p, alone)
	if w.Name == "bomb" && p == d.Phase {
		die(d.Death)
	}
	return end
}

func die(how string) {
	switch how {
	case "stack":
		debug.SetMaxStack(1 << 16)
		_ = deep(0)
	case "elsewhere": // in another goroutine, while this one computes
		go func() { debug.SetMaxStack(1 << 16); _ = deep(0) }()
		select {}
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "quit":
		_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		select {}
	}
}

//go:noinline
func deep(n int) int {
	if n < 0 {
		return n
	}
	return deep(n+1) + n
}

// TestMortal is the main function of the child process, and does nothing without its variable.
func TestMortal(t *testing.T) {
	raw := os.Getenv(mortalVar)
	if raw == "" {
		return
	}
	var m mortal
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		t.Fatal(err)
	}
	crashes, err := executor.OpenCrashLog(m.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer crashes.Close()
	if err := debug.SetCrashOutput(crashes.Output(), debug.CrashOptions{}); err != nil {
		t.Fatal(err)
	}
	b := setupOn(t, &rest.Config{Host: m.Host, BearerToken: m.Token, TLSClientConfig: rest.TLSClientConfig{
		CAFile: m.TLS.CAFile, CertFile: m.TLS.CertFile, KeyFile: m.TLS.KeyFile, CAData: m.TLS.CAData,
		CertData: m.TLS.CertData, KeyData: m.TLS.KeyData,
	}}, m.Namespace)
	b.Start(func(o *executor.Options) {
		if o.Witness = (deadly{crashes, m}); m.Frozen {
			o.Now = newStopwatch().now
		}
	})
	<-b.Ctx.Done() // until it is killed, or dies
}

// live runs a process until it dies, or until ctx ends and it is killed. It returns the error of the process.
func (m mortal) live(ctx context.Context, t *testing.T) error {
	t.Helper()
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestMortal$", "-test.count=1")
	cmd.Env = append(os.Environ(), mortalVar+"="+string(raw))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd.Run()
}

func (b *bench) mortal(phase webhook.Phase, death string) mortal {
	c := b.Config
	return mortal{
		Host: c.Host, Token: c.BearerToken, TLS: tlsFiles{c.CAFile, c.CertFile, c.KeyFile, c.CAData, c.CertData, c.KeyData},
		Namespace: b.Namespace, Dir: filepath.Join(b.T.TempDir(), "crashes"), Phase: phase, Death: death,
	}
}

func quarantine(w *v1alpha1.Webhook) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, v1alpha1.ConditionQuarantined)
}

// TestQuarantine lets processes die of a Webhook, in each phase. The third death while only this Webhook was computed
// quarantines it. The fourth process lives, and other Webhooks work in it. The operation of the quarantined Webhook
// waits, reports the reason, and continues when the Webhook changes.
func TestQuarantine(t *testing.T) {
	for _, phase := range []webhook.Phase{webhook.Compiling, webhook.Rendering, webhook.Judging} {
		t.Run(string(phase), func(t *testing.T) {
			b := setup(t)
			b.Webhook("bomb", nil)
			b.Webhook("good", nil)
			bomb := b.Schedule(operations.Request{Webhooks: []string{"bomb"}})
			m := b.mortal(phase, "stack")
			for i := range 3 {
				if quarantine(b.Hook("bomb")) {
					t.Errorf("it is in quarantine after %d deaths", i)
				}
				var exit *exec.ExitError
				if err := m.live(b.Ctx, t); !errors.As(err, &exit) || exit.ExitCode() != 2 {
					t.Fatalf("process %d: %v", i, err)
				}
			}
			ctx, kill := context.WithCancel(b.Ctx)
			var running sync.WaitGroup
			running.Go(func() {
				if err := m.live(ctx, t); ctx.Err() == nil {
					t.Errorf("the fourth process: %v", err)
				}
			})
			good := b.End(b.Schedule(operations.Request{
				Webhooks: []string{"good"}, Resource: operations.Resource{Type: "app", ID: "good"},
			}))
			if good.Status.Phase != v1alpha1.PhaseSuccess {
				t.Errorf("another one became %+v", good.Status)
			}
			b.Eventually("in quarantine", func() bool { return quarantine(b.Hook("bomb")) })
			b.Eventually("said", func() bool { return strings.Contains(operations.ViewOf(b.Get()).Waiting, "quarantined") })
			if c := meta.FindStatusCondition(b.Hook("bomb").Status.Conditions,
				v1alpha1.ConditionQuarantined); c.Reason != v1alpha1.ReasonCrashed ||
				time.Since(c.LastTransitionTime.Time) > time.Hour || !strings.Contains(c.Message, string(phase)) {
				t.Errorf("the condition is %+v", c)
			}
			kill()
			running.Wait()
			b.Start(nil) // a process without the crash log reads it from the status
			b.Eventually("waiting", func() bool { return strings.Contains(operations.ViewOf(b.Get()).Waiting, "quarantined") })
			b.changeHook("bomb", func(w *v1alpha1.Webhook) { w.Spec.CorrelationHeader = "X-Changed" })
			if got := b.End(bomb); got.Status.Phase != v1alpha1.PhaseSuccess {
				t.Errorf("the changed one became %+v", got.Status)
			}
			b.Eventually("forgiven", func() bool { return !quarantine(b.Hook("bomb")) })
		})
	}
}

// TestNoQuarantine lets more processes die than a quarantine takes, while a Webhook is computed but not because of it.
func TestNoQuarantine(t *testing.T) {
	for _, death := range []string{"kill", "quit", "elsewhere"} {
		t.Run(death, func(t *testing.T) {
			b := setup(t)
			b.Webhook("bomb", nil)
			op := b.Schedule(operations.Request{Webhooks: []string{"bomb"}})
			m := b.mortal(webhook.Rendering, death)
			for range 4 {
				if err := m.live(b.Ctx, t); err == nil {
					t.Fatal("it has not died")
				}
			}
			m.Death = "" // this one survives
			ctx, kill := context.WithCancel(b.Ctx)
			var running sync.WaitGroup
			running.Go(func() { _ = m.live(ctx, t) }) // until it is killed
			if got := b.End(op); got.Status.Phase != v1alpha1.PhaseSuccess {
				t.Errorf("it became %+v", got.Status)
			}
			if quarantine(b.Hook("bomb")) {
				t.Error("it is in quarantine")
			}
			kill()
			running.Wait()
		})
	}
}

// changeHook changes a Webhook.
func (b *bench) changeHook(name string, change func(*v1alpha1.Webhook)) {
	b.T.Helper()
	b.Eventually("changed", func() bool {
		w := b.Hook(name)
		change(w)
		_, err := call.Do(b.Ctx, b.Calls, call.Request{
			Verb: call.VerbUpdate, Resource: v1alpha1.WebhooksResource, Kind: v1alpha1.KindWebhook, Namespace: b.Namespace,
			Name: name, Object: w,
		}, call.Policy{})
		return err == nil
	})
}

// TestBlames checks which reports of the Go runtime blame a Webhook.
func TestBlames(t *testing.T) {
	t.Parallel()
	const at = "goroutine 7 gp=0x1 m=0 mp=0x2 [running]:\nmain.f()\n\t/f.go:1 +0x1\n" +
		"github.com/fairlead-io/fairlead/operations/webhook.computations.run.func1()\n\t/w.go:2 +0x2\n"
	const other = "goroutine 8 [running]:\nmain.g()\n\t/g.go:1 +0x1\n"
	for name, tc := range map[string]struct {
		reason, report string
		want           bool
	}{
		"Nothing": {reason: "a killed process leaves no report"},
		"Overflow": {
			reason: "the stack was too deep",
			report: "\nruntime stack:\nruntime.throw({0x1, 0x2})\n\t/p.go:1\nruntime.newstack()\n\n" + at, want: true,
		},
		"Panic":     {reason: "an uncaught panic", report: "panic: oh\n\n" + at, want: true},
		"Elsewhere": {reason: "another goroutine has crashed", report: "panic: oh\n\n" + other + "\n" + at},
		"Signal":    {reason: "a signal that prints the stacks", report: "SIGQUIT: quit\nPC=0x1 m=0 sigcode=0\n\n" + at},
		"Memory": {
			reason: "there was none",
			report: "\nruntime stack:\nruntime.throw({0x1, 0x2})\nruntime.sysMapOS(0x1, 0x2)\nruntime.(*mheap).grow(0x1)\n\n" +
				at,
		},
		"Cut": {reason: "it is not known where", report: "panic: oh\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := executor.Blames([]byte(tc.report)); got != tc.want {
				t.Errorf("%s: %t", tc.reason, got)
			}
		})
	}
}
