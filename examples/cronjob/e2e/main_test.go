// Package e2e_test runs the program cronjob on a real control plane. The tests run one after the other, since each
// program works in all namespaces, and only one may work at a time.
package e2e_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/examples/internal/kubetest"
	"github.com/fairlead-io/fairlead/internal/testbed/program"
)

var (
	env     clustertest.Env
	cronjob program.Program
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cronjob.Main(env.Main(m))) }

const (
	apiVersion  = "example.fairlead.io/v1"
	scheduledAt = "example.fairlead.io/scheduled-at"
)

// world is a namespace with a user and one CronJob. There is no Job controller: the Jobs end when the test says so.
type world struct {
	*kubetest.User
	t       *testing.T
	cronJob *unstructured.Unstructured
}

// newWorld makes a CronJob with a spec. The schedule is one run a second, and the template is a good one, unless the
// spec has others.
func newWorld(t *testing.T, spec map[string]any) *world {
	t.Helper()
	env.InstallCRDs(t, clustertest.CRDFiles("../cronjobs.yaml"))
	w := &world{User: kubetest.New(t, env.Config(t), env.Namespace(t)), t: t}
	w.cronJob = w.Object(apiVersion, "CronJob", "report")
	w.cronJob.Object["spec"] = map[string]any{"schedule": "@every 1s", "jobTemplate": jobTemplate("Never")}
	for name, value := range spec {
		w.cronJob.Object["spec"].(map[string]any)[name] = value
	}
	w.Create(w.cronJob)
	t.Cleanup(func() { w.Delete(w.cronJob) })
	return w
}

func jobTemplate(restartPolicy string) map[string]any {
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"restartPolicy": restartPolicy, "containers": []any{map[string]any{"name": "report", "image": "report:v1"}},
	}}}}
}

// operate runs the program until the test ends.
func (w *world) operate() *program.Process {
	w.t.Helper()
	return cronjob.Start(w.t, program.Options{Config: env.Config(w.t)})
}

// jobs returns the Jobs by name. The name of each must follow from its time.
func (w *world) jobs() map[string]*unstructured.Unstructured {
	w.t.Helper()
	all := map[string]*unstructured.Unstructured{}
	for _, job := range w.List("batch/v1", "Job") {
		due, err := time.Parse(time.RFC3339, job.GetAnnotations()[scheduledAt])
		if want := fmt.Sprintf("report-%d", due.Unix()); err != nil || job.GetName() != want {
			w.t.Errorf("the job of %s is %s, not %s (%v)", due, job.GetName(), want, err)
		}
		all[job.GetName()] = &job
	}
	return all
}

// end plays the Job controller: a Job has ended.
func (w *world) end(job *unstructured.Unstructured, how string) {
	w.t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	w.ModifyStatus(job, func(content map[string]any) {
		status, first := map[string]any{"startTime": now}, "FailureTarget"
		if how == "Complete" {
			status["completionTime"], first = now, "SuccessCriteriaMet"
		}
		for _, kind := range []string{first, how} {
			conditions, _ := status["conditions"].([]any)
			status["conditions"] = append(conditions,
				map[string]any{"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": now})
		}
		content["status"] = status
	})
}

// says waits until the CronJob has a condition for its present spec.
func (w *world) says(kind, status, reason string) {
	w.t.Helper()
	w.Await(fmt.Sprintf("%s=%s %s", kind, status, reason), w.cronJob, func(content map[string]any) bool {
		return kubetest.HasCondition(content, kind, status, reason)
	})
}

func (w *world) modify(name string, value any) {
	w.t.Helper()
	w.Modify(w.cronJob, func(content map[string]any) { content["spec"].(map[string]any)[name] = value })
}

// Every second a Job begins, and the status names each that runs.
func TestAllow(t *testing.T) {
	w := newWorld(t, nil)
	w.operate()
	w.Until("there are three jobs", func() bool { return len(w.jobs()) >= 3 })
	w.says("Ready", "True", "AsAskedFor")
	w.modify("suspend", true)
	w.says("Scheduled", "True", "Suspended")
	w.Await("the status names the jobs", w.cronJob, func(content map[string]any) bool {
		active, _, _ := unstructured.NestedSlice(content, "status", "active")
		jobs := w.jobs()
		for _, each := range active {
			if name, _ := each.(map[string]any)["name"].(string); jobs[name] == nil {
				t.Fatalf("there is no job %s", name)
			}
		}
		return len(active) == len(jobs)
	})
}

// A run waits for the end of the one before. What has ended is kept up to the limit.
func TestForbid(t *testing.T) {
	w := newWorld(t, map[string]any{"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": int64(1)})
	w.operate()
	var before *unstructured.Unstructured
	for n := range 3 {
		var running *unstructured.Unstructured
		w.Until("another job runs", func() bool {
			for _, job := range w.jobs() {
				if conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions"); len(conditions) == 0 {
					if running != nil && running.GetName() != job.GetName() {
						t.Fatalf("%s and %s run", running.GetName(), job.GetName())
					}
					running = job
				}
			}
			return running != nil
		})
		if n > 0 {
			w.says("LastRun", "True", "Succeeded")
		}
		w.says("Scheduled", "True", "Forbidden")
		w.end(running, "Complete")
		if before != nil {
			w.AwaitGone(before)
		}
		before = running
	}
}

// A program that is killed again and again leaves nothing that the next one would do twice: with Replace no look finds
// two Jobs, and in the end there is one that goes on.
func TestKilled(t *testing.T) {
	w := newWorld(t, map[string]any{"concurrencyPolicy": "Replace"})
	seen := map[string]bool{}
	look := func() int {
		jobs := w.jobs()
		if len(jobs) > 1 {
			t.Errorf("there are %d jobs", len(jobs))
		}
		for name := range jobs {
			seen[name] = true
		}
		return len(seen)
	}
	for range 5 {
		p, before := w.operate(), len(seen)
		w.Until("another run begins", func() bool { return look() > before })
		p.Kill()
	}
	w.operate()
	w.Until("the last program goes on", func() bool { return look() > 7 })
	w.says("Ready", "True", "AsAskedFor")
}

// What cannot run is told in the status, and tried again when the spec has changed.
func TestStalled(t *testing.T) {
	w := newWorld(t, map[string]any{"schedule": "0 0 31 2 *"})
	w.operate()
	w.says("Stalled", "True", "InvalidSchedule")
	w.says("Ready", "False", "InvalidSchedule")
	w.modify("jobTemplate", jobTemplate("Always")) // no Job may have that
	w.modify("schedule", "@every 1s")
	w.says("Stalled", "True", "InvalidJob")
	if n := len(w.jobs()); n > 0 {
		t.Errorf("there are %d jobs", n)
	}
	w.modify("jobTemplate", jobTemplate("Never"))
	w.Until("there is a job", func() bool { return len(w.jobs()) > 0 })
	w.says("Ready", "True", "AsAskedFor")
}

// The API server refuses what makes no sense.
func TestValidation(t *testing.T) {
	w := newWorld(t, nil)
	raw, err := os.ReadFile("../sample.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(raw, &sample.Object); err != nil {
		t.Fatal(err)
	}
	sample.SetNamespace(w.Namespace())
	w.Create(sample)
	defer w.Delete(sample)
	for reason, change := range map[string]func(cj *unstructured.Unstructured, spec map[string]any){
		"no schedule": func(_ *unstructured.Unstructured, spec map[string]any) { spec["schedule"] = "" },
		"an unknown policy": func(_ *unstructured.Unstructured,
			spec map[string]any,
		) {
			spec["concurrencyPolicy"] = "Perhaps"
		},
		"a limit below 0": func(_ *unstructured.Unstructured, spec map[string]any) {
			spec["failedJobsHistoryLimit"] = int64(-1)
		},
		"a deadline below 0": func(_ *unstructured.Unstructured, spec map[string]any) {
			spec["startingDeadlineSeconds"] = int64(-1)
		},
		"a name too long": func(cj *unstructured.Unstructured, _ map[string]any) {
			cj.SetName(fmt.Sprintf("report-%046d", 0))
		},
	} {
		cj, spec := w.Object(apiVersion, "CronJob", "other"), map[string]any{
			"schedule": "@hourly", "jobTemplate": jobTemplate("Never"),
		}
		cj.Object["spec"] = spec
		change(cj, spec)
		if err := w.TryCreate(cj); !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}
