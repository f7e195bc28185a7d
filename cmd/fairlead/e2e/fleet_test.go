package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/operations"
	"github.com/fairlead-io/fairlead/operations/api/v1alpha1"
	"github.com/fairlead-io/fairlead/shard"
	"github.com/fairlead-io/fairlead/shard/group"
)

// TestConsoleOfReplicas: the console of each of two replicas shows the operations of both, finds them by filters, and
// follows their changes. It names the members with their objects, and links to their consoles.
func TestConsoleOfReplicas(t *testing.T) {
	t.Parallel()
	f := newReplicated(t)
	for i, space := range f.spaces {
		if _, err := space.scheduler.Schedule(f.ctx, operations.Request{
			Type: operations.Delete, Resource: operations.Resource{Type: "app", ID: fmt.Sprint("of-", i)},
			Webhooks: []string{"missing"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, at := range f.addresses {
		base := "http://" + at
		f.eventually(base+" shows the operations of both", func() bool {
			_, list := f.get(base + "/console/operations?" + url.Values{"status": {"IN_PROGRESS"}}.Encode())
			return strings.Contains(list, "app/of-0") && strings.Contains(list, "app/of-1")
		})
		_, list := f.get(base + "/console/operations")
		if !strings.Contains(list, "Cancel 2 in progress") {
			t.Errorf("%s does not offer to cancel both:\n%s", base, list)
		}
		code, sources := f.get(base + "/console/sources")
		if code != http.StatusOK || !strings.Contains(sources, `id="one-replica"`) {
			t.Errorf("%s does not say that a page is about one replica: %d\n%s", base, code, sources)
		}
		_, shards := f.get(base + "/console/shards")
		for _, other := range f.addresses {
			if !strings.Contains(shards, `<a href="http://`+other+`/console/"`) {
				t.Errorf("%s does not link to %s:\n%s", base, other, shards)
			}
		}
		if strings.Contains(shards, `id="one-replica"`) {
			t.Errorf("%s says that the page of all replicas is about one", base)
		}
		f.eventually(base+" reports one object for each member", func() bool {
			report := f.report(base)
			return len(report.Members) == 2 && !slices.ContainsFunc(report.Members, func(m group.MemberReport) bool {
				return m.Load == nil || *m.Load != 1 || m.Address == ""
			})
		})
	}
	for i, space := range f.spaces { // one of them is that of the other replica
		app := operations.Resource{Type: "app", ID: fmt.Sprint("of-", i)}
		if _, err := space.scheduler.Cancel(f.ctx, app, ""); err != nil {
			t.Fatal(err)
		}
		for _, at := range f.addresses {
			f.eventually("http://"+at+" shows the end", func() bool {
				_, list := f.get("http://" + at + "/console/operations?" + url.Values{"status": {"FAILED"}}.Encode())
				_, one := f.get("http://" + at + "/console/operations/" + space.namespace + "/" +
					v1alpha1.OperationName(app.Type, app.ID))
				return strings.Contains(list, "app/"+app.ID) && strings.Contains(one, "Why it failed")
			})
		}
	}
}

// report returns the answer of /api/shards.
func (s *site) report(base string) (report group.Report) {
	s.t.Helper()
	code, raw := s.get(base + "/api/shards")
	if code != http.StatusOK {
		s.t.Fatalf("%s/api/shards: %d %s", base, code, raw)
	}
	if err := json.Unmarshal([]byte(raw), &report); err != nil {
		s.t.Fatalf("%v: %s", err, raw)
	}
	return report
}

// replicated has two replicas that share the operations of some namespaces, and two of these namespaces, one held by
// each replica.
type replicated struct {
	*site
	spaces    []*site
	addresses []string
}

func newReplicated(t *testing.T) *replicated {
	t.Helper()
	s := newSite(t, env.Config(t))
	f := &replicated{site: s}
	args := []string{
		"--kubeconfig", s.kubeconfig, "--system-namespace", s.namespace, "--shards", "--insecure-no-auth",
	}
	names := s.spread(8)
	for _, name := range names {
		args = append(args, "--namespace", name)
	}
	for range 2 {
		f.addresses = append(f.addresses, <-s.start(args...).address)
	}
	balanced(t, []string{"shards", s.namespace + "/" + groupDefault, "--kubeconfig", s.kubeconfig}, shard.DefaultSlots)
	report, err := group.Read(s.ctx, s.config, s.namespace, groupDefault)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range report.Members {
		i := slices.IndexFunc(names, func(name string) bool {
			return slices.Contains(m.Slots, (shard.Layout{}).SlotOf(name, ""))
		})
		if i < 0 {
			t.Fatalf("%+v holds none of %v", m, names)
		}
		f.spaces = append(f.spaces, s.in(names[i]))
	}
	return f
}

// spread creates n namespaces whose slots are as far apart.
func (s *site) spread(n int) (names []string) {
	s.t.Helper()
	clients := kubernetes.NewForConfigOrDie(s.config)
	for len(names) < n {
		name := fmt.Sprintf("%x-spread", rand.Uint64())
		if (shard.Layout{}).SlotOf(name, "")*n/shard.DefaultSlots != len(names) {
			continue
		}
		if _, err := clients.CoreV1().Namespaces().Create(s.ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			s.t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}
