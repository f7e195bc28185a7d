package simulate_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/internal/simulation/engine"
	"github.com/fairlead-io/fairlead/simulate"
	"github.com/fairlead-io/fairlead/simulate/internal/toys"
)

// idle is a subject that does nothing, but for what fn does first.
func idle(fn func(ctx context.Context) error) simulate.Subject {
	return toys.Subject(func(ctx context.Context, _ *rest.Config) error {
		if err := fn(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
}

// A subject that cannot be judged leads to an error that says why, and what to do.
func TestNotJudged(t *testing.T) {
	never := func(simulate.World) error { return errors.New("the moon is not full") }
	for _, tt := range []struct {
		name    string
		subject simulate.Subject
		parts   []simulate.Part
		says    string
	}{
		{
			"NeverReady", toys.CreatedTwice(true),
			[]simulate.Part{simulate.Await(never)},
			"step 2, await, was not reached: the moon is not full",
		},
		{
			"NeverServed", toys.CreatedTwice(true),
			[]simulate.Part{simulate.Delete("gadgets/web")},
			`step 2, delete gadgets/web, was not reached: the API server has no resource "gadgets"`,
		},
		{
			"NoSuchResource", toys.CreatedTwice(true),
			[]simulate.Part{simulate.Invariant(func(w simulate.World) error {
				if w.Object("gadgets/web") != nil {
					return errors.New("there is a gadget")
				}
				return nil
			})},
			"the API server never served gadgets, which a condition or an invariant names",
		},
		{
			"Prints",
			idle(func(ctx context.Context) error {
				fmt.Fprintln(os.Stderr, "cannot reach the moon")
				context.AfterFunc(ctx, func() { fmt.Print(strings.Repeat("stopping\n", 20)) })
				return nil
			}),
			[]simulate.Part{simulate.Await(never)},
			"\n  the last output:\n    cannot reach the moon\n",
		},
		{
			"Refused", toys.Subject(createEmptyPod),
			[]simulate.Part{simulate.Await(never)},
			"create pods/default/a → 422: Pod \"a\" is invalid: spec.containers: Required value",
		},
		{
			"Ends",
			toys.Subject(func(context.Context, *rest.Config) error { return errors.New("no configuration") }),
			nil, "the subject ended: no configuration",
		},
		{"Nothing", idle(func(context.Context) error { return nil }), nil, "the subject wrote nothing"},
		{
			"NeverSettles", toys.Controller(func(t *toys.Toy, w toys.Widget) error {
				t.Again(w.GetName())
				return t.SetStatus(w, map[string]any{"count": fmt.Sprint(w.GetResourceVersion())}, true)
			}), nil, "never settles without faults; these objects keep changing: widgets.example.fairlead.io/default/web",
		},
		{
			"Panics", idle(func(context.Context) error {
				go func() { panic("out of luck") }()
				return nil
			}), nil, "panic: out of luck",
		},
		{
			"Listens", idle(func(ctx context.Context) error {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				context.AfterFunc(ctx, func() { l.Close() })
				_, err = l.Accept()
				return err
			}), nil, `Set Metrics: metricsserver.Options{BindAddress: "0"}`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parts := append([]simulate.Part{simulate.ApplyObject(toys.Web())}, tt.parts...)
			report, err := simulate.Search(t, "", tt.subject, append(parts, simulate.Schedules(10))...)
			if report == nil && err == nil {
				return // a child
			}
			var notJudged *engine.NotJudgedError
			if !errors.As(err, &notJudged) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is\n%v\nwant a NotJudgedError with %q", err, tt.says)
			}
		})
	}
}

// createEmptyPod sends a pod without containers as protobuf.
func createEmptyPod(ctx context.Context, cfg *rest.Config) error {
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	_, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		return fmt.Errorf("a pod without containers leads to the error %w", err)
	}
	<-ctx.Done()
	return nil
}

// A mistake in the call is reported before anything is played.
func TestMistakes(t *testing.T) {
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "objects.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	crd := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.example.com}\nspec: " +
		"{versions: 7}\n"
	settings := "kind: ConfigMap\napiVersion: v1\nmetadata: {name: settings, namespace: absent}\n"
	apply, vendor := simulate.ApplyObject(toys.Web()), simulate.External(toys.Vendor, toys.VendorService)
	start := func(ctx context.Context, _ *rest.Config) error { <-ctx.Done(); return nil }
	for _, tt := range []struct {
		name    string
		subject simulate.Subject
		parts   []simulate.Part
		says    string
	}{
		{"NoStart", simulate.Subject{}, []simulate.Part{apply}, "no Start"},
		{"NoSteps", simulate.Subject{Start: start}, nil, "no steps"},
		{
			"NoFile",
			simulate.Subject{Start: start},
			[]simulate.Part{simulate.Apply("absent.yaml")},
			"absent.yaml: no such file",
		},
		{"NoCRDs", simulate.Subject{Start: start, CRDs: "absent"}, []simulate.Part{apply}, "absent: no such file"},
		{
			"NoCRD",
			simulate.Subject{Start: start, CRDs: file("kind: A\napiVersion: v1\nmetadata: {name: a}\n")},
			[]simulate.Part{apply},
			"there is no CustomResourceDefinition",
		},
		{
			"InvalidCRD",
			simulate.Subject{Start: start, CRDs: file(crd)},
			[]simulate.Part{apply},
			"cannot use the CustomResourceDefinitions in ",
		},
		{
			"NoGiven",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, simulate.Given(file(crd))},
			"cannot read the given objects: there are only CustomResourceDefinitions in ",
		},
		{
			"GivenWithoutNamespace",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, simulate.Given(file(settings))},
			"cannot create the ConfigMap settings before the subject starts: ",
		},
		{
			"NoKind",
			simulate.Subject{Start: start},
			[]simulate.Part{simulate.Apply(file("metadata: {name: a}\n"))},
			"no kind, apiVersion or name",
		},
		{
			"Class",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, simulate.Faults("fire")},
			"the classes are crash, depose, error, expired, late, lost, pause, stale",
		},
		{
			"Schedules",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, simulate.Schedules(0)},
			"cannot play 0 schedules",
		},
		{
			"Until",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, simulate.Until(-time.Second)},
			"cannot search for -1s",
		},
		{
			"External",
			simulate.Subject{Start: start},
			[]simulate.Part{apply, vendor, vendor},
			"given twice",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, err := simulate.Search(t, "", tt.subject, tt.parts...)
			if report == nil && err == nil {
				return // a child
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("the error is %v; want %q", err, tt.says)
			}
		})
	}
}

// Times that a subject writes are no change, and what it prints is not kept.
func TestHeartbeatsAndLogs(t *testing.T) {
	beats := toys.Controller(func(t *toys.Toy, w toys.Widget) error {
		fmt.Println(strings.Repeat("x", 1<<20))
		if w.Status("phase") != "Ready" {
			return t.SetStatus(w, map[string]any{"phase": "Ready"}, true)
		}
		go func() {
			timer := time.NewTimer(30 * time.Second)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-t.Context.Done():
				return
			}
			body := fmt.Sprintf(`{"status":{"seen":%q}}`, time.Now().Format(time.RFC3339))
			_, err := t.Widgets.Patch(t.Context, w.GetName(), types.MergePatchType, []byte(body), metav1.PatchOptions{},
				"status")
			if err != nil {
				t.Again(w.GetName())
			}
		}()
		return nil
	})
	report, err := simulate.Search(t, "", beats, simulate.ApplyObject(toys.Web()), simulate.Await(toys.Ready),
		simulate.Schedules(20))
	if err != nil {
		t.Fatal(err)
	}
	if report != nil && (len(report.Findings) > 0 || report.FailedCount > 0 || report.Played != 20) {
		t.Error(engine.Text(report, engine.Names{}))
	}
}

// Goroutines that a subject leaves behind, asleep or blocked, cost a process for each schedule, and the report says so.
func TestLeavesGoroutines(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		leaves := toys.CreatedTwice(fixed)
		start := leaves.Start
		leaves.Start = func(ctx context.Context, cfg *rest.Config) error {
			go func() { select {} }()
			go func() {
				for {
					<-time.After(10 * time.Minute)
				}
			}()
			go func() { <-time.After(10 * time.Second) }() // ends in time
			return start(ctx, cfg)
		}
		report, err := simulate.Search(t, fmt.Sprint(fixed), leaves, simulate.ApplyObject(toys.Web()),
			simulate.Await(toys.Ready),
			simulate.Schedules(30))
		if err != nil {
			t.Fatal(err)
		}
		if report == nil {
			continue // a child
		}
		text := engine.Text(report, engine.Names{})
		if (len(report.Findings) == 0) != fixed || report.FailedCount > 0 ||
			!strings.Contains(text, "the subject leaves goroutines behind when its context ends") ||
			!strings.Contains(text, "2 of ") && !strings.Contains(text, "1 of ") {
			t.Error(text)
		}
	}
}

// The report names what the model does not have and the subject uses.
func TestNotModelled(t *testing.T) {
	uses := toys.Subject(func(ctx context.Context, cfg *rest.Config) error {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		if _, err := client.AutoscalingV2().HorizontalPodAutoscalers("").List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		if _, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{}); err != nil {
			return err
		}
		meta := metav1.ObjectMeta{Namespace: "default", Name: "a"}
		err = client.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: meta})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the eviction has no 404, but %w", err)
		}
		never := corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}},
		}
		job := &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
			CompletionMode: new(batchv1.IndexedCompletion), Completions: new(int32(1)), BackoffLimitPerIndex: new(int32(1)),
			Template: corev1.PodTemplateSpec{Spec: never},
		}}
		_, err = client.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		cm := &corev1.ConfigMap{ObjectMeta: meta}
		_, err = client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		<-ctx.Done()
		return nil
	})
	report, err := simulate.Search(t, "", uses, simulate.ApplyObject(toys.Web()), simulate.Schedules(1),
		simulate.Faults("crash"))
	if report == nil && err == nil {
		return // a child
	}
	want := []string{
		"not modelled: horizontalpodautoscalers.autoscaling have no defaults, rules or controller",
		"not modelled: v1/pods/eviction is not served",
		"not modelled: jobs.batch with backoffLimitPerIndex have no pods", "not modelled: admission and authorization",
		"virtual time begins at 2026-01-15T12:00:00Z",
	}
	if err != nil || !slices.Equal(report.Warnings, want) {
		t.Errorf("the report is %+v, error %v; want the warnings %q", report, err, want)
	}
}

// Two searches at the same time do not disturb each other.
func TestSideBySide(t *testing.T) {
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := simulate.Search(t, "", toys.CreatedTwice(name == "a"), simulate.ApplyObject(toys.Web()),
				simulate.Await(toys.Ready),
				simulate.Schedules(30))
			if err != nil {
				t.Fatal(err)
			}
			if report != nil && (len(report.Findings) == 0) != (name == "a") {
				t.Error(engine.Text(report, engine.Names{}))
			}
		})
	}
}

// A finding can be replayed from its plan, and its files show it.
func TestReplay(t *testing.T) {
	out := t.TempDir()
	parts := []simulate.Part{simulate.ApplyObject(toys.Web()), simulate.Await(toys.Ready), simulate.Out(out)}
	report, err := simulate.Search(t, "", toys.CreatedTwice(false), parts...)
	if report == nil && err == nil {
		return // a child
	}
	if err != nil || len(report.Findings) == 0 {
		t.Fatalf("findings %v, error %v", report, err)
	}
	plan, err := os.ReadFile(filepath.Join(out, "1.json"))
	if err != nil {
		t.Fatal(err)
	}
	html, err := os.ReadFile(filepath.Join(out, "1.html"))
	if err != nil || !strings.Contains(string(html), report.Findings[0].Symptoms[0].Text) ||
		strings.Contains(string(html), "ZgotmplZ") {
		t.Errorf("1.html is %s, error %v", html, err)
	}
	t.Setenv("FAIRLEAD_SIMULATE_PLAN", string(plan))
	again, err := simulate.Search(t, "", toys.CreatedTwice(false), parts...)
	if err != nil || len(again.Findings) != 1 || again.Findings[0].Symptoms[0] != report.Findings[0].Symptoms[0] {
		t.Errorf("the replay gives %+v, error %v; want %+v", again, err, report.Findings[0].Symptoms)
	}
}

// Given objects exist before each process of the subject starts, whatever their order in the file. Their creation is no
// part of the course.
func TestGiven(t *testing.T) {
	name := filepath.Join(t.TempDir(), "given.yaml")
	text := "kind: ConfigMap\napiVersion: v1\nmetadata: {name: settings, namespace: home}\ndata: {size: big}\n---\n" +
		"kind: Namespace\napiVersion: v1\nmetadata: {name: home}\n"
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	subject := toys.Subject(func(ctx context.Context, cfg *rest.Config) error {
		clients, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		settings, err := clients.CoreV1().ConfigMaps("home").Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		settings.Data["seen"] = "yes"
		if _, err := clients.CoreV1().ConfigMaps("home").Update(ctx, settings, metav1.UpdateOptions{}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	seen := simulate.Await(func(w simulate.World) error {
		if cm := w.Object("configmaps/home/settings"); cm == nil || cm.Object["data"].(map[string]any)["seen"] == nil {
			return errors.New("the settings were not seen")
		}
		return nil
	})
	report, err := simulate.Search(t, "", subject, simulate.Given(name), seen, simulate.Faults("crash"),
		simulate.Schedules(2))
	if report == nil && err == nil {
		return // a child
	}
	if err != nil || len(report.Findings) > 0 || report.Played != 2 {
		t.Errorf("the report is %+v, error %v; want two crashes without a finding", report, err)
	}
}
