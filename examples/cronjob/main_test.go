package main

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	first  = 0 * time.Minute
	second = 5 * time.Minute
	third  = 10 * time.Minute
	fourth = 15 * time.Minute
)

// Each time of the schedule has its Job, and a status that names those that run. Of several times that have passed the
// last one counts.
func TestAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{}).start()
	w.at(first - time.Second)
	w.jobs()
	w.status("Ready=True AsAskedFor")
	w.at(first)
	w.jobs(first)
	w.at(second + time.Minute)
	w.jobs(first, second)
	s := w.status("Scheduled=True Waiting", first, second)
	if !s.LastScheduleTime.Equal(new(metav1.NewTime(w.begin.Add(second)))) {
		t.Errorf("the last run was at %s", s.LastScheduleTime)
	}
	w.at(fourth)
	w.jobs(first, second, fourth)
}

// With nothing due there is nothing to ask: not by a reconciliation, nor by a restart besides its lists.
func TestNothingDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{}).start()
	w.at(first)
	w.end(first, batchv1.JobComplete)
	before := w.op.requests.Load()
	for d := range 100 {
		w.at(first + time.Duration(d)*time.Second)
	}
	if n := w.op.requests.Load() - before; n != 0 {
		t.Errorf("100 reconciliations with nothing to do sent %d requests", n)
	}
	w.at(second)
	if n := w.op.requests.Load() - before; n != 2 {
		t.Errorf("a run took %d requests, not one for the job and one for the status", n)
	}
}

func TestForbid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{ConcurrencyPolicy: Forbid}).start()
	w.at(first)
	w.at(second)
	w.jobs(first)
	w.status("Scheduled=True Forbidden", first)
	w.end(first, batchv1.JobComplete) // which lets the next one begin
	w.jobs(first, second)
	w.status("LastRun=True Succeeded", second)
}

func TestReplace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{ConcurrencyPolicy: Replace}).start()
	w.at(first)
	w.at(second)
	w.jobs(second)
	w.status("Ready=True AsAskedFor", second)
}

func TestSuspend(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{Suspend: true}).start()
	w.at(first)
	w.jobs()
	w.status("Scheduled=True Suspended")
	w.modify(func(s *CronJobSpec) { s.Suspend = false })
	w.jobs(first)
}

func TestStartingDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{StartingDeadlineSeconds: new(int64(10))}).start()
	w.at(first + 11*time.Second)
	w.jobs()
	w.status("Scheduled=True Missed")
	w.at(second + 10*time.Second)
	w.jobs(second)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{SuccessfulJobsHistoryLimit: new(int32(1))}).start()
	for _, d := range []time.Duration{first, second, third, fourth} {
		w.at(d)
	}
	w.end(first, batchv1.JobComplete)
	w.end(second, batchv1.JobFailed)
	w.end(third, batchv1.JobComplete)
	w.jobs(second, third, fourth) // the first one was the older of two that succeeded
	w.status("Ready=True AsAskedFor", fourth)
	w.end(fourth, batchv1.JobFailed)
	w.jobs(third, fourth) // one that failed is kept by default
	w.status("Ready=False Failed")
}

// What nobody can run is told, and looked at again when it has changed.
func TestStalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, CronJobSpec{Schedule: "0 0 31 2 *"}).start()
	w.status("Stalled=True InvalidSchedule")
	w.status("Ready=False InvalidSchedule")
	w.modify(func(s *CronJobSpec) {
		s.Schedule, s.JobTemplate.Spec.Template.Spec.RestartPolicy = "@every 5m", "Always" // no Job may have that
	})
	w.begin = w.cj.CreationTimestamp.Add(5 * time.Minute)
	w.status("Ready=True AsAskedFor")
	w.at(first)
	w.jobs()
	w.status("Stalled=True InvalidJob")
	w.modify(func(s *CronJobSpec) { s.JobTemplate = jobTemplate() })
	w.jobs(first)
	w.status("Ready=True AsAskedFor", first)
}

// An operator that dies before or after any of its writes leaves nothing that the next one would do twice.
func TestKilledAtEachWrite(t *testing.T) {
	t.Parallel()
	// The first status; for each run a delete, but at the first, a Job and the status; the end and a delete.
	const writes = 8
	for at := range int64(writes) {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, after it: %t", at+1, after), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, CronJobSpec{SuccessfulJobsHistoryLimit: new(int32(0)), ConcurrencyPolicy: Replace})
				o := w.operate(at+1, after)
				w.wait("the start", isInitial)
				w.at(first)
				w.jobs(first)
				w.at(second)
				w.jobs(second) // never two, also not of different times: Replace
				w.end(second, batchv1.JobComplete)
				w.at(third - time.Second)
				w.jobs() // none is kept, and what is gone does not run again
				w.status("LastRun=True Succeeded")
				if w.op == o {
					t.Error("it was not killed")
				}
			})
		}
	}
}
