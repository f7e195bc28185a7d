package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/fairlead-io/fairlead/simulate"
)

// Whatever fails, each run has one Job, no two Jobs of a CronJob run at the same time, and nothing is left behind.
func TestFaults(t *testing.T) {
	simulate.Test(t, simulate.Subject{
		Start: func(ctx context.Context, cfg *rest.Config) error {
			rt, err := newRuntime(cfg)
			if err != nil {
				return err
			}
			declare(rt, &cronJobs{c: rt.Client(), now: time.Now})
			return rt.Run(ctx)
		},
		CRDs: "cronjobs.yaml",
	},
		simulate.Apply("testdata/cronjobs.yaml"),
		simulate.Await(begun("one-by-one", 2)), // later than its time, since the first one is still running
		simulate.Patch("cronjobs.example.fairlead.io/latest", `{"spec":{"suspend":true}}`),
		simulate.Patch("cronjobs.example.fairlead.io/one-by-one", `{"spec":{"suspend":true}}`),
		simulate.Await(finished("latest", 1)),
		simulate.Await(finished("one-by-one", 1)), // the older one is beyond the limit
		simulate.Patch("cronjobs.example.fairlead.io/latest", `{"spec":{"suspend":false}}`),
		simulate.Await(begun("latest", 3)),
		simulate.Delete("cronjobs.example.fairlead.io/latest"),
		simulate.Gone("cronjobs.example.fairlead.io/latest"),
		simulate.Await(func(w simulate.World) error {
			if n := len(jobs(w, "latest")); n > 0 {
				return fmt.Errorf("there are %d Jobs", n)
			}
			return nil
		}),
		simulate.Invariant(oneAtATime),
		simulate.Schedules(40),
	)
}

// begun returns the condition that the status shows run n, counted from 1, which is due n minutes after the start.
func begun(name string, n int) func(simulate.World) error {
	return func(w simulate.World) error {
		var cj CronJob
		if err := w.Into("cronjobs.example.fairlead.io/"+name, &cj); err != nil {
			return err
		}
		due := cj.CreationTimestamp.Truncate(time.Minute).Add(time.Duration(n) * time.Minute)
		if t := cj.Status.LastScheduleTime; t == nil || t.Time.Before(due) {
			return fmt.Errorf("the last run was at %s", t)
		}
		return nil
	}
}

// finished returns the condition that no Job is active, and n Jobs are kept.
func finished(name string, n int) func(simulate.World) error {
	return func(w simulate.World) error {
		var cj CronJob
		if err := w.Into("cronjobs.example.fairlead.io/"+name, &cj); err != nil {
			return err
		}
		if active, kept := len(cj.Status.Active), len(jobs(w, name)); active > 0 || kept != n {
			return fmt.Errorf("%d of %d Jobs are active", active, kept)
		}
		return nil
	}
}

func oneAtATime(w simulate.World) error {
	for _, cj := range w.Objects("cronjobs.example.fairlead.io") {
		running := 0
		for _, job := range jobs(w, cj.GetName()) {
			if job.DeletionTimestamp == nil && !succeeded(job) && !is(job, batchv1.JobFailed) {
				running++
			}
		}
		if running > 1 {
			return fmt.Errorf("%d Jobs of %s run at the same time", running, cj.GetName())
		}
	}
	return nil
}

// jobs returns the Jobs of a CronJob.
func jobs(w simulate.World, name string) []*batchv1.Job {
	var out []*batchv1.Job
	for _, u := range w.Objects("jobs.batch") {
		if by := metav1.GetControllerOf(u); by == nil || by.Name != name {
			continue
		}
		job := &batchv1.Job{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, job); err != nil {
			panic(err) // the server validates Jobs
		}
		out = append(out, job)
	}
	return out
}
