package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// A day of a job every ten minutes, on the fake clock: the operator wakes by itself, at the right time, and sends
// nothing in between.
func TestADay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
		server, err := newServer(apiserver.Options{Pipe: true})
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(err)
		defer server.Close()
		_, err = server.Put(&CronJob{
			TypeMeta: metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team-a", Name: "report", UID: "1", CreationTimestamp: metav1.Now(),
			},
			Spec: CronJobSpec{Schedule: "*/10 * * * *", JobTemplate: jobTemplate()},
		})
		must(err)
		rt, err := newRuntime(server.Config())
		must(err)
		declare(rt, &cronJobs{c: rt.Client(), now: time.Now})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- rt.Run(ctx) }()
		sent := func() int { // everything but watches
			log := server.Log()
			return len(log.Requests) - log.Count(apiserver.Match{Verb: "watch"})
		}

		begin := time.Now().Truncate(10 * time.Minute)
		for n := range 24 * 6 {
			at := begin.Add(time.Duration(n+1) * 10 * time.Minute)
			time.Sleep(time.Until(at.Add(-time.Second)))
			synctest.Wait()
			before := sent()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := sent() - before; got != 2 {
				t.Fatalf("at %s there were %d requests, not one for a job and one for the status", at, got)
			}
			all, err := server.Objects(jobs)
			must(err)
			last := &batchv1.Job{}
			for _, each := range all {
				var job batchv1.Job
				must(runtime.DefaultUnstructuredConverter.FromUnstructured(each.Object, &job))
				if due(&job).After(due(last)) {
					last = &job
				}
			}
			if !due(last).Equal(at) {
				t.Fatalf("at %s the last job is %s", at, last.Name)
			}
			_, err = server.Change(jobs, "team-a", last.Name, func(u *unstructured.Unstructured) {
				u.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
			})
			must(err)
			time.Sleep(time.Second)
			synctest.Wait()
			quiet := sent()
			time.Sleep(9 * time.Minute)
			if got := sent() - quiet; got != 0 {
				t.Fatalf("after %s, with nothing due, %d requests were sent", at, got)
			}
			if len(all) > 4 {
				t.Fatalf("%d jobs are kept", len(all))
			}
		}
		stop()
		must(<-done)
	})
}
