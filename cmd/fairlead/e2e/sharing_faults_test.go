package e2e_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/testbed/program"
	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestShared runs three controllers that share the operations. They start at once, and are replaced one after the
// other. Every call is made once.
func TestShared(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Minute)
	old := f.start(3, "--shards")
	f.shared(3)
	for _, p := range old {
		f.start(1, "--shards")
		f.shared(4)
		f.stop(p)
		f.shared(3)
	}
	f.end()
}

// TestSharedFaults kills and pauses controllers that share the operations. It also cuts them off from the API server
// for longer than their leases. Only the calls in progress are repeated, with the same key. FAIRLEAD_PROCESS_FAULTS=n
// adds n random faults.
func TestSharedFaults(t *testing.T) {
	t.Parallel()
	n, _ := strconv.Atoi(os.Getenv("FAIRLEAD_PROCESS_FAULTS"))
	f := newFleet(t, 2*time.Minute+time.Duration(n)*time.Minute)
	f.start(3, "--shards")
	f.shared(3)
	f.kill(f.one())
	f.start(1, "--shards")
	f.shared(3)
	f.pause(f.one(), 18*time.Second)
	f.shared(3)
	f.partition(f.one(), 18*time.Second)
	f.shared(3)
	for i := range n {
		f.fault(i)
	}
	f.end()
}

// fault plays a random fault.
func (f *fleet) fault(i int) {
	f.t.Helper()
	kind := f.rnd.IntN(8)
	f.t.Logf("fault %d: %d", i, kind)
	switch kind {
	case 0:
		f.stop(f.one())
		f.start(1, "--shards")
	case 1:
		f.kill(f.one())
		f.start(1, "--shards")
	case 2:
		f.pause(f.one(), 16*time.Second+time.Duration(f.rnd.IntN(5000))*time.Millisecond)
	case 3:
		f.pause(f.one(), time.Duration(f.rnd.IntN(9000))*time.Millisecond)
	case 4: // all of them at once
		for range 3 {
			f.kill(f.one())
		}
		f.start(3, "--shards")
	case 5:
		p := f.one()
		f.start(1, "--shards")
		f.pass(time.Duration(f.rnd.IntN(2000)) * time.Millisecond)
		f.stop(p)
	case 7:
		f.partition(f.one(), time.Duration(f.rnd.IntN(15000))*time.Millisecond)
	case 6: // two at a time, one of them dead
		f.kill(f.one())
		f.pause(f.one(), time.Duration(f.rnd.IntN(12000))*time.Millisecond)
		f.start(1, "--shards")
	}
	f.pass(time.Duration(f.rnd.IntN(3000)) * time.Millisecond)
	f.shared(3)
}

// TestSharedAndElected rolls controllers over from --leader-elect to --shards, and back. Every call is made once.
func TestSharedAndElected(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Minute)
	old := f.start(2, "--leader-elect")
	f.pass(time.Second)
	for _, flags := range []string{"--shards", "--leader-elect"} {
		var next []*process
		for _, p := range old {
			next = append(next, f.start(1, flags)...)
			for _, at := range slices.Clone(f.serving) { // a roll-out continues only if each replica is ready
				f.eventually("ready", func() bool {
					code, _ := f.get("http://" + at + "/readyz")
					return code == http.StatusOK
				})
			}
			f.stop(p)
		}
		if old = next; flags == "--shards" {
			f.shared(2)
			f.pass(time.Second)
		}
	}
	f.end()
	for _, p := range old {
		f.stop(p)
	}
}

// TestSharedOtherSlots rolls controllers over to another number of slots. The new ones wait, ready, until the last old
// one has ended. Every call is made once.
func TestSharedOtherSlots(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Minute)
	old := f.start(2, "--shards")
	f.shared(2)
	for _, p := range old {
		f.start(1, "--shards", "--shard-slots", "16")
		for _, at := range slices.Clone(f.serving) {
			f.eventually("ready", func() bool {
				code, _ := f.get("http://" + at + "/readyz")
				return code == http.StatusOK
			})
		}
		f.stop(p)
	}
	f.shared(2)
	report, err := group.Read(f.ctx, f.config, f.namespace, groupDefault)
	if err != nil || report.Of != 16 {
		t.Errorf("shared in %+v: %v", report, err)
	}
	f.end()
}

// TestSharedWithoutRights takes the right to Leases away from controllers that share operations. No controller works
// once the leases have expired, and /readyz gives the reason. They continue when the right is granted again.
func TestSharedWithoutRights(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2*time.Minute)
	f.deploy("rbac.yaml")
	f.deploy("shards/rbac.yaml")
	clients := kubernetes.NewForConfigOrDie(f.config)
	token, err := clients.CoreV1().ServiceAccounts(f.namespace).CreateToken(f.ctx, "fairlead-controller",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f.kubeconfig = program.Kubeconfig(t, f.config, token.Status.Token)
	replicas := f.start(2, "--shards")
	f.shared(2)
	roles := clients.RbacV1().Roles(f.namespace)
	role, err := roles.Get(f.ctx, "fairlead-controller-shards", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := roles.Delete(f.ctx, role.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.cuts++ // the end of the leases interrupts the calls in progress
	for _, at := range f.serving {
		f.eventually("the missing right is reported", func() bool {
			code, body := f.get("http://" + at + "/readyz")
			return code != http.StatusOK && strings.Contains(body, "leases")
		})
	}
	for _, at := range f.serving { // until their leases have expired they hold their slots
		f.eventually("out of slots", func() bool {
			_, body := f.get("http://" + at + "/metrics")
			return holdsNothing.MatchString(body)
		})
	}
	before := f.begun()
	f.pass(3 * time.Second)
	if after := f.begun(); after != before {
		t.Errorf("%d calls were started by replicas without slots", after-before)
	}
	f.allLive()
	const rule = `{apiGroups: ["coordination.k8s.io"], resources: ["leases"], ` +
		`verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]}`
	f.asks("waits", operations.Request{Webhooks: []string{"nowhere"}})
	for _, at := range f.serving {
		p := patient{f.site, at, ""}
		want := p.of("waits", "The replica may not write Leases.")
		want.first = []string{"Forbidden", rule, f.namespace}
		p.shows(want)
	}
	for _, p := range replicas {
		p.mu.Lock()
		said := strings.Count(p.log.String(), "no permission for Leases")
		p.mu.Unlock()
		if said != 1 {
			t.Errorf("logged %d times", said)
		}
	}
	role.ResourceVersion, role.UID = "", ""
	if _, err := roles.Create(f.ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.shared(2)
	f.end()
}

var holdsNothing = regexp.MustCompile(`(?m)^fairlead_shard_slots_held(\{[^}]*\})? 0$`)

// begun returns how many calls the receivers have seen.
func (f *fleet) begun() (n int) {
	f.modes.mu.Lock()
	defer f.modes.mu.Unlock()
	for _, made := range f.made {
		n += made
	}
	return n
}

// TestSharedWithOthers: controllers do not join a group of another role.
func TestSharedWithOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, env.Config(t))
	g, err := group.New(s.config, group.Options{Namespace: s.namespace, Name: "maps", Role: "watch"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	defer running.Wait()
	defer cancel()
	s.eventually("a group", func() bool { return !g.Held().IsEmpty() })
	p := s.controller(s.kubeconfig, "--insecure-no-auth", "--shards="+s.namespace+"/maps")
	var exit *exec.ExitError
	err = p.end(s.ctx, t)
	lines := strings.Split(strings.TrimSpace(p.log.String()), "\n")
	if !errors.As(err, &exit) || exit.ExitCode() != exitUsage ||
		!strings.Contains(lines[len(lines)-1], "the group has another role") {
		t.Errorf("%v\n%s", err, p.log)
	}
}
