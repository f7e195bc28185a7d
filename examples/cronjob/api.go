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

// CronJob begins a Job at each time of a schedule.
type CronJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              CronJobSpec   `json:"spec"`
	Status            CronJobStatus `json:"status,omitempty"`
}

// CronJobSpec says what runs, and when.
type CronJobSpec struct {
	// Schedule has five fields, as in a crontab, or is a word such as @hourly or "@every 10m". Times are UTC.
	Schedule string `json:"schedule"`
	// StartingDeadlineSeconds is how late a run may begin; one that is later is left out. Default: any time.
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`
	// ConcurrencyPolicy says what to do when the run before is not done; Allow by default.
	ConcurrencyPolicy ConcurrencyPolicy `json:"concurrencyPolicy,omitempty"`
	// Suspend has no run begin. What runs goes on.
	Suspend bool `json:"suspend,omitempty"`
	// JobTemplate is the Job of each run.
	JobTemplate batchv1.JobTemplateSpec `json:"jobTemplate"`
	// SuccessfulJobsHistoryLimit is how many Jobs that succeeded are kept, FailedJobsHistoryLimit how many that failed;
	// 3 and 1 by default.
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`
	FailedJobsHistoryLimit     *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// ConcurrencyPolicy is what happens to a run whose time comes while another one is not done.
type ConcurrencyPolicy string

// The policies.
const (
	Allow   ConcurrencyPolicy = "Allow"   // both run
	Forbid  ConcurrencyPolicy = "Forbid"  // it waits for the end of the other one, at most until its deadline
	Replace ConcurrencyPolicy = "Replace" // the other one is deleted
)

// CronJobStatus is what has become of it.
type CronJobStatus struct {
	// Active are the Jobs that run.
	Active []corev1.ObjectReference `json:"active,omitempty"`
	// LastScheduleTime is the time that the last run was due.
	LastScheduleTime *metav1.Time `json:"lastScheduleTime,omitempty"`
	// Conditions are Scheduled, LastRun, and Ready, which follows from them.
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
