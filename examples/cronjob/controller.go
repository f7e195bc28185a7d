package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/client"
	"github.com/fairlead-io/fairlead/conditions"
	"github.com/fairlead-io/fairlead/reconcile"
)

// scheduledAt is the annotation of a Job with the time at which it was due.
const scheduledAt = "example.fairlead.io/scheduled-at"

// cronJobs is the controller.
type cronJobs struct {
	c   *client.Client
	now func() time.Time
}

// Reconcile implements reconcile.Reconciler.
func (r *cronJobs) Reconcile(ctx context.Context, cj *CronJob) (reconcile.Result, error) {
	if cj.DeletionTimestamp != nil {
		return reconcile.Done, nil // the garbage collector deletes its Jobs
	}
	says, now := conditions.Of(cj), r.now().UTC()
	schedule, err := parse(cj.Spec.Schedule)
	if err != nil {
		return r.stalled(ctx, cj, says, "InvalidSchedule", err)
	}
	before, err := r.runs(ctx, cj)
	if err != nil {
		return reconcile.Retry(err)
	}
	due := latest(schedule, before.last, now)
	next := schedule.Next(cmp.Or(due, before.last))
	switch late := now.Sub(due); {
	case cj.Spec.Suspend:
		says.True("Scheduled", "Suspended", "no run begins until it is resumed")
	case due.IsZero():
		says.True("Scheduled", "Waiting", "the next run is at %s", next.Format(time.RFC3339))
	case cj.Spec.StartingDeadlineSeconds != nil && late > time.Duration(*cj.Spec.StartingDeadlineSeconds)*time.Second:
		says.True("Scheduled", "Missed", "the run of %s was not begun in time", due.Format(time.RFC3339))
	case cj.Spec.ConcurrencyPolicy == Forbid && len(before.active) > 0:
		says.True("Scheduled", "Forbidden", "the run of %s waits for the one before", due.Format(time.RFC3339))
	default:
		if err := r.begin(ctx, cj, before, due); apierrors.IsInvalid(err) {
			return r.stalled(ctx, cj, says, "InvalidJob", err)
		} else if err != nil {
			return reconcile.Retry(err)
		}
		says.True("Scheduled", "Waiting", "the next run is at %s", next.Format(time.RFC3339))
	}

	after, err := r.runs(ctx, cj) // from the cache, which includes the writes above
	if err == nil {
		err = r.tell(ctx, cj, says, after)
	}
	if err == nil {
		err = r.tidy(ctx, cj, after)
	}
	if err != nil || cj.Spec.Suspend {
		return reconcile.Retry(err)
	}
	return reconcile.After(next.Sub(now)), nil
}

// begin creates the Job of a run. The Job's name is derived from the due time, so a repeated call after a crash or
// with a stale cache does not create a second Job.
func (r *cronJobs) begin(ctx context.Context, cj *CronJob, before *runs, due time.Time) error {
	if cj.Spec.ConcurrencyPolicy == Replace {
		if err := r.remove(ctx, before.active...); err != nil {
			return err
		}
	}
	template := cj.Spec.JobTemplate.DeepCopy()
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cj.Namespace, Name: fmt.Sprintf("%s-%d", cj.Name, due.Unix()),
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: template.Spec,
	}
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, scheduledAt, due.Format(time.RFC3339))
	if err := reconcile.Own(r.c, cj, job); err != nil {
		return err
	}
	err := r.c.Create(ctx, job)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	var found batchv1.Job
	if err := r.c.Live().Get(ctx, client.Key{Namespace: job.Namespace, Name: job.Name}, &found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(&found, cj) {
		return fmt.Errorf("cannot begin the run of %s: the job %s belongs to somebody else", due, job.Name)
	}
	return nil
}

// tell writes the status if it has changed.
func (r *cronJobs) tell(ctx context.Context, cj *CronJob, says *conditions.Set, now *runs) error {
	switch last := now.finished; {
	case last == nil:
		says.Keep("LastRun") // its Job may have been deleted
	case succeeded(last):
		says.True("LastRun", "Succeeded", "the job %s has succeeded", last.Name)
	default:
		says.False("LastRun", "Failed", "the job %s has failed", last.Name)
	}
	return client.ModifyStatus(ctx, r.c, cj, func(cj *CronJob) error {
		cj.Status.Active = nil
		for _, job := range now.active {
			cj.Status.Active = append(cj.Status.Active, corev1.ObjectReference{
				APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
				Namespace: job.Namespace, Name: job.Name, UID: job.UID,
			})
		}
		if now.last.After(cj.CreationTimestamp.Time) {
			cj.Status.LastScheduleTime = new(metav1.NewTime(now.last))
		}
		says.Into(&cj.Status.Conditions)
		return nil
	})
}

// tidy deletes the oldest finished Jobs beyond the history limits. It must run after the status has recorded the last
// run: until then the Jobs are the only record of it.
func (r *cronJobs) tidy(ctx context.Context, cj *CronJob, now *runs) error {
	keep := int(*cmp.Or(cj.Spec.SuccessfulJobsHistoryLimit, new(int32(3))))
	if err := r.remove(ctx, now.succeeded[:max(0, len(now.succeeded)-keep)]...); err != nil {
		return err
	}
	keep = int(*cmp.Or(cj.Spec.FailedJobsHistoryLimit, new(int32(1))))
	return r.remove(ctx, now.failed[:max(0, len(now.failed)-keep)]...)
}

func (r *cronJobs) remove(ctx context.Context, jobs ...*batchv1.Job) error {
	for _, job := range jobs {
		if err := r.c.Delete(ctx, job, client.SameUID(), client.IgnoreNotFound(),
			client.Propagation(metav1.DeletePropagationBackground)); err != nil {
			return err
		}
	}
	return nil
}

// stalled writes the Stalled condition and returns a result that waits for a change of the spec.
func (r *cronJobs) stalled(
	ctx context.Context, cj *CronJob, says *conditions.Set, reason string, cause error,
) (reconcile.Result, error) {
	says.Stalled(reason, "%v", cause)
	says.Keep("LastRun")
	if err := client.ModifyStatus(ctx, r.c, cj, func(cj *CronJob) error {
		says.Into(&cj.Status.Conditions)
		return nil
	}); err != nil {
		return reconcile.Retry(err)
	}
	return reconcile.Terminal(cause)
}

// runs are the Jobs of a CronJob, oldest first.
type runs struct {
	active, succeeded, failed []*batchv1.Job // read-only
	finished                  *batchv1.Job   // the last finished Job
	last                      time.Time      // when the last run was due; the creation time if there was no run
}

func (r *cronJobs) runs(ctx context.Context, cj *CronJob) (*runs, error) {
	out := &runs{last: cj.CreationTimestamp.UTC()}
	if t := cj.Status.LastScheduleTime; t != nil {
		out.last = t.UTC()
	}
	var jobs []*batchv1.Job
	for job, err := range client.List[batchv1.Job](ctx, r.c, client.OwnedBy(cj)) {
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return due(a).Compare(due(b)) })
	for _, job := range jobs {
		if t := due(job); t.After(out.last) {
			out.last = t
		}
		switch {
		case succeeded(job):
			out.succeeded, out.finished = append(out.succeeded, job), job
		case is(job, batchv1.JobFailed):
			out.failed, out.finished = append(out.failed, job), job
		default:
			out.active = append(out.active, job)
		}
	}
	return out, nil
}

// due returns the time at which a Job was due. It returns the zero time for a Job of another creator.
func due(job *batchv1.Job) time.Time {
	t, _ := time.Parse(time.RFC3339, job.Annotations[scheduledAt])
	return t
}

func succeeded(job *batchv1.Job) bool { return is(job, batchv1.JobComplete) }

func is(job *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
