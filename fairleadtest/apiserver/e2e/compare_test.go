package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
	"github.com/fairlead-io/fairlead/internal/testlimit"
)

// The comparison sends the same requests to a real kube-apiserver and to a server of package apiserver, and compares
// the answers. The table of differences names every answer that differs, and no other.

// Paths of the scenarios; {ns} is a namespace of the scenario's own.
const (
	core    = "/api/v1/namespaces/{ns}/"
	cms     = core + "configmaps"
	things  = "/apis/compare.fairlead.io/v1/namespaces/{ns}/things"
	thingAt = "compare.fairlead.io/v1"
)

// thing is the custom resource of the scenarios. Neither server knows anything of its content.
var thing = apiserver.Resource{
	Group: "compare.fairlead.io", Version: "v1", Resource: "things", Kind: "Thing", Namespaced: true,
	Subresources: []string{"status"},
}

// scenario is a sequence of requests, each of which may use what earlier ones were answered.
type scenario struct {
	name  string
	steps []step
}

// step is one request, or what is read from a watch.
type step struct {
	name   string // unique in the scenario; {name.uid} and the like stand for what was answered
	method string
	path   string
	header map[string]string
	body   string

	open  bool   // the answer is a watch, which later steps read
	watch string // reads from the watch that this step has opened…
	count int    // … so many events; -1: all until it ends

	compact bool // forgets the history

	settled func(code int, body []byte) bool // repeats the request until it is true; only the code is compared
}

// until repeats a request until its answer is settled. Only the code of that answer is compared.
func (s step) until(settled func(code int, body []byte) bool) step {
	s.settled = settled
	return s
}

// scenarios are all of them: one table per subject.
func scenarios() []scenario {
	return slices.Concat(createScenarios(), bodyScenarios(), updateScenarios(), patchScenarios(), applyScenarios(),
		statusScenarios(),
		deleteScenarios(), finalizerScenarios(), collectionScenarios(), readScenarios(), listScenarios(), watchScenarios(),
		builtInScenarios())
}

// endpoint is one of the two servers.
type endpoint struct {
	client  *http.Client
	url     string
	compact func(context.Context) error // nil where history may not be forgotten
}

func TestSameAnswersAsARealServer(t *testing.T) {
	t.Parallel()
	cfg := env.Config(t)
	installThings(t, cfg)
	known := knownDifferences(t)
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			compareServers(t, cfg, env.Namespace(t), sc, nil, known, withThings())
		})
	}
}

// knownDifferences returns the difference of each step that is listed.
func knownDifferences(t *testing.T) map[string]string {
	t.Helper()
	known := map[string]string{}
	for _, d := range differences {
		for _, at := range d.steps {
			if known[at] != "" {
				t.Errorf("%s is listed twice", at)
			}
			known[at] = d.name
		}
	}
	all := slices.Concat(scenarios(), definitionScenarios())
	for at := range known {
		name, of, _ := strings.Cut(at, "/")
		if !slices.ContainsFunc(all, func(sc scenario) bool {
			return sc.name == name && slices.ContainsFunc(sc.steps, func(s step) bool { return s.name == of })
		}) {
			t.Errorf("there is no step %s", at)
		}
	}
	return known
}

// TestSameAnswersAfterCompaction has a control plane of its own, since it makes that forget its history.
func TestSameAnswersAfterCompaction(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{})
	installThings(t, c.Config())
	compact := func(ctx context.Context) error {
		if _, err := c.Compact(ctx); err != nil {
			return err
		}
		return c.RestartAPIServer(ctx) // whose watch cache would remember
	}
	compareServers(t, c.Config(), clustertest.Namespace(t, c.Config()), compactionScenario(), compact, nil, withThings())
}

// withThings returns the options of a server with the custom resource of the scenarios.
func withThings() apiserver.Options {
	return apiserver.Options{Resources: append(apiserver.DefaultResources(), thing)}
}

// compareServers plays a scenario against a real server and one of ours; known are the steps whose answers differ, and
// why.
func compareServers(
	t *testing.T, cfg *rest.Config, namespace string, sc scenario, compact func(
		context.Context,
	) error, known map[string]string, opts apiserver.Options,
) {
	t.Helper()
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := apiserver.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ours.Close)
	transport := &http.Transport{DialContext: ours.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	if _, err := ours.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		t.Fatal(err)
	}
	forget := func(context.Context) error { ours.Compact(0); return nil }
	want := run(t, endpoint{hc, cfg.Host, compact}, namespace, sc)
	got := run(t, endpoint{&http.Client{Transport: transport}, ours.URL(), forget}, namespace, sc)
	for i, s := range sc.steps {
		reason := known[sc.name+"/"+s.name]
		switch diff := cmp.Diff(strings.Split(want[i], "\n"), strings.Split(got[i], "\n")); {
		case diff != "" && reason == "":
			t.Errorf("%s: %s %s %.500s (-real +ours):\n%s", s.name, s.method, s.path, s.body, diff)
		case diff == "" && reason != "":
			t.Errorf("%s does not differ any more, and is listed under %q", s.name, reason)
		}
	}
}

// send makes the request of a step, again if the server is too busy for it, as the real one is while its watch cache
// fills.
func (e endpoint) send(ctx context.Context, n *normaliser, s step) (*http.Response, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, s.method, e.url+n.fill(s.path), strings.NewReader(n.fill(s.body)))
		if err != nil {
			return nil, err
		}
		req.Header.Set("User-Agent", "comparer/1")
		for k, v := range s.header {
			req.Header.Set(k, v)
		}
		res, err := e.client.Do(req)
		if err != nil || res.StatusCode != http.StatusTooManyRequests {
			return res, err
		}
		res.Body.Close()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// await sends the request of a step until its answer is settled, and returns its code.
func (e endpoint) await(ctx context.Context, t *testing.T, n *normaliser, s step) string {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := e.send(ctx, n, s)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if s.settled(res.StatusCode, body) {
			return fmt.Sprint(res.StatusCode)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is not settled: %d %s", s.name, res.StatusCode, body)
		}
	}
}

// TestDifferencesAreDocumented holds the list in the documentation of the package to the one of the test.
func TestDifferencesAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var documented, listed []string
	_, section, _ := strings.Cut(string(doc), "# What differs from a real server")
	for _, item := range strings.Split(section, "//   - ")[1:] {
		item, _, _ = strings.Cut(item, "package apiserver")
		documented = append(documented, strings.Join(strings.Fields(strings.ReplaceAll(item, "//", "")), " "))
	}
	for _, d := range differences {
		listed = append(listed, d.name+": "+d.reason)
	}
	if diff := cmp.Diff(listed, documented); diff != "" {
		t.Errorf("differences (-listed +documented):\n%s", diff)
	}
}

// run plays a scenario against one server and returns what each step was answered, normalised.
func run(t *testing.T, e endpoint, namespace string, sc scenario) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	n := newNormaliser(namespace)
	watches := map[string]*watching{}
	var out []string
	for _, s := range sc.steps {
		n.begin(s)
		if s.compact {
			if err := e.compact(ctx); err != nil {
				t.Fatal(err)
			}
			out = append(out, "compacted")
			continue
		}
		if s.watch != "" {
			out = append(out, watches[s.watch].read(n, s.count))
			continue
		}
		if s.settled != nil {
			out = append(out, e.await(ctx, t, n, s))
			continue
		}
		res, err := e.send(ctx, n, s)
		if err != nil {
			t.Fatalf("%s/%s: %v", sc.name, s.name, err)
		}
		if s.open && res.StatusCode == http.StatusOK {
			watches[s.name] = follow(t, res)
			out = append(out, "200 watching as "+mediaType(res))
			continue
		}
		watches[s.name] = &watching{}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatalf("%s/%s: %v", sc.name, s.name, err)
		}
		out = append(out, fmt.Sprintf("%d %s%s\n%s", res.StatusCode, mediaType(res), warnings(res), n.body(body)))
	}
	return out
}

var installThingsOnce sync.Mutex

func installThings(t *testing.T, cfg *rest.Config) {
	t.Helper()
	installThingsOnce.Lock()
	defer installThingsOnce.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), testlimit.Wait)
	defer cancel()
	keep := true
	c := apiextensions.NewForConfigOrDie(cfg).CustomResourceDefinitions()
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: thing.Resource + "." + thing.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: thing.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: thing.Resource, Singular: "thing", Kind: thing.Kind, ListKind: "ThingList",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: thing.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
				},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}},
			}},
		},
	}
	if _, err := c.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := c.Get(ctx, crd.Name, metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(got.Status.Conditions,
			func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the custom resource is not served: %+v, %v", got, err)
		}
	}
}
