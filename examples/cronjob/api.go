package main

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// CronJob creates a Job at each time of a schedule.
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CronJobSpec   `json:"spec"`
	Status            CronJobStatus `json:"status,omitempty"`
}

// CronJobSpec is the desired state of a CronJob.
type CronJobSpec struct {
	// Schedule has five fields, as in a crontab, or is a descriptor such as @hourly or "@every 10m". Times are UTC.
	Schedule string `json:"schedule"`
	// StartingDeadlineSeconds bounds the delay of a run. A run that is later than that is skipped. By default there
	// is no bound.
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy applies when the previous run has not finished. The default is Allow.
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Suspend stops new runs. Running Jobs are not affected.
	Suspend bool `json:"suspend,omitempty"`
	// JobTemplate is the template of the Job of each run.
	JobTemplate batchv1.JobTemplateSpec `json:"jobTemplate"`
	// SuccessfulJobsHistoryLimit is the number of succeeded Jobs to keep, FailedJobsHistoryLimit the number of failed
	// ones. The defaults are 3 and 1.
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	FailedJobsHistoryLimit     *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// ConcurrencyPolicy says how to treat a run that is due while another one has not finished.
type ConcurrencyPolicy string

// Concurrency policies.
const (
	Allow   ConcurrencyPolicy = "Allow"   // both run
	Forbid  ConcurrencyPolicy = "Forbid"  // the new run waits until the other has finished, at most until its deadline
	Replace ConcurrencyPolicy = "Replace" // the other run is deleted
)

// CronJobStatus is the observed state of a CronJob.
type CronJobStatus struct {
	// Active are the running Jobs.
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// LastScheduleTime is the time at which the last run was due.
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// Conditions are Scheduled, LastRun and Ready. Ready is computed from the other two.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (c *CronJob) DeepCopyObject() runtime.Object {
	out := *c
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	c.Spec.JobTemplate.DeepCopyInto(&out.Spec.JobTemplate)
	out.Spec.StartingDeadlineSeconds = clone(c.Spec.StartingDeadlineSeconds)
	out.Spec.SuccessfulJobsHistoryLimit = clone(c.Spec.SuccessfulJobsHistoryLimit)
	out.Spec.FailedJobsHistoryLimit = clone(c.Spec.FailedJobsHistoryLimit)
	out.Status.Active = slices.Clone(c.Status.Active)
	out.Status.LastScheduleTime = c.Status.LastScheduleTime.DeepCopy()
	out.Status.Conditions = slices.Clone(c.Status.Conditions)
	return &out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return new(*p)
}

var kind = schema.GroupVersionKind{Group: "example.fairlead.io", Version: "v1", Kind: "CronJob"}

func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(kind, &CronJob{})
	metav1.AddToGroupVersion(s, kind.GroupVersion())
	return s, scheme.AddToScheme(s)
}
