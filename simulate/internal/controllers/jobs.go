package controllers

import (
	"cmp"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

var jobKind = metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}

const (
	firstJobBackOff = 10 * time.Second // before a failed pod is replaced, doubled each time
	maxJobBackOff   = 10 * time.Minute
)

// jobRun is the state of one Job, for one decision.
type jobRun struct {
	w    *world
	o    *object
	job  *batchv1.Job
	next *batchv1.Job // the same with the next status

	pods              []*object // that the Job controls
	active            []*object
	ready             int32
	terminating       int32
	succeeded, failed int32        // with the pods that the status does not count yet
	indexes           map[int]bool // that have succeeded, of an indexed Job
}

// runJob is the controller of Jobs. It follows syncJob of the real one.
func runJob(w *world, o *object) decision {
	job := as[batchv1.Job](o)
	if job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName {
		return decision{}
	}
	w.noteJobGaps(job)
	if job.Spec.BackoffLimitPerIndex != nil {
		return decision{}
	}
	if end := jobEnd(job); end != nil {
		return expireJob(o, job, end.LastTransitionTime.Time)
	}
	r := &jobRun{w: w, o: o, job: job, next: job.DeepCopy()}
	if adopt := r.count(); adopt != nil {
		return send(adopt)
	}
	return r.decide()
}

// noteJobGaps notes the fields of a Job that have no effect here.
func (w *world) noteJobGaps(job *batchv1.Job) {
	if job.Spec.BackoffLimitPerIndex != nil {
		w.gaps["jobs.batch with backoffLimitPerIndex have no pods"] = true
	}
	if job.Spec.PodFailurePolicy != nil {
		w.gaps["podFailurePolicy of jobs.batch has no effect"] = true
	}
	if job.Spec.SuccessPolicy != nil {
		w.gaps["successPolicy of jobs.batch has no effect"] = true
	}
}

// jobEnd returns the condition of a Job that has ended; nil if it has not.
func jobEnd(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// expireJob deletes a Job when its time to live has passed since its end.
func expireJob(o *object, job *batchv1.Job, end time.Time) decision {
	ttl := job.Spec.TTLSecondsAfterFinished
	if ttl == nil || o.isDeleted {
		return decision{}
	}
	if at := end.Add(time.Duration(*ttl) * time.Second); at.After(time.Now()) {
		return decision{again: at}
	}
	return send(remove(manager, o, metav1.DeletePropagationForeground, nil))
}

// count counts the pods. The request adopts or releases one.
func (r *jobRun) count() *request {
	s := &r.next.Status
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	if r.job.Spec.Selector == nil {
		for _, p := range r.w.dependents(r.o.uid) {
			if p.resource == pods {
				r.pods = append(r.pods, p)
			}
		}
	} else {
		var adopt *request
		if r.pods, adopt = claim(r.o, jobKind, r.job.Spec.Selector, r.w.all(pods, r.o.namespace)); adopt != nil {
			return adopt
		}
	}
	uncounted := s.UncountedTerminatedPods
	r.succeeded = s.Succeeded + int32(len(uncounted.Succeeded))
	r.failed = s.Failed + int32(len(uncounted.Failed))
	for _, p := range r.pods {
		pod := as[corev1.Pod](p)
		if isActive(pod) {
			r.active = append(r.active, p)
			if isReady(pod) {
				r.ready++
			}
		}
		if p.isDeleted && !simnode.IsFinished(pod) {
			r.terminating++
		}
		switch {
		case !p.hasFinalizer(batchv1.JobTrackingFinalizer):
		case pod.Status.Phase == corev1.PodSucceeded && !slices.Contains(uncounted.Succeeded, p.uid):
			r.succeeded++
		case r.isFailed(p) && !slices.Contains(uncounted.Failed, p.uid):
			r.failed++
		}
	}
	if isIndexed(r.job) {
		r.countIndexes()
		r.succeeded = int32(len(r.indexes))
	}
	return nil
}

// isFailed reports whether a pod counts as failed.
func (r *jobRun) isFailed(p *object) bool {
	switch phase := as[corev1.Pod](p).Status.Phase; {
	case phase == corev1.PodFailed:
		return true
	case r.replacesOnlyFailed():
		return false
	default:
		return p.isDeleted && phase != corev1.PodSucceeded
	}
}

// replacesOnlyFailed reports whether a pod that is being deleted keeps its place until it has ended.
func (r *jobRun) replacesOnlyFailed() bool {
	return r.job.Spec.PodReplacementPolicy != nil && *r.job.Spec.PodReplacementPolicy == batchv1.Failed
}

func (r *jobRun) isSuspended() bool { return r.job.Spec.Suspend != nil && *r.job.Spec.Suspend }

func (r *jobRun) condition(kind batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range r.next.Status.Conditions {
		if r.next.Status.Conditions[i].Type == kind {
			return &r.next.Status.Conditions[i]
		}
	}
	return nil
}

func (r *jobRun) set(kind batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) {
	c := r.condition(kind)
	if c == nil {
		r.next.Status.Conditions = append(r.next.Status.Conditions, batchv1.JobCondition{})
		c = &r.next.Status.Conditions[len(r.next.Status.Conditions)-1]
	}
	*c = batchv1.JobCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastTransitionTime: metav1.Now(), LastProbeTime: metav1.Now(),
	}
}

func (r *jobRun) decide() decision {
	s := &r.next.Status
	if s.StartTime == nil && !r.isSuspended() {
		s.StartTime = new(metav1.Now())
	}
	again := r.judgeFailure()
	isFailing, isDone := r.condition(batchv1.JobFailureTarget) != nil, r.isDone()
	switch {
	case isFailing && len(r.active) > 0:
		return send(remove(manager, r.active[0], "", nil))
	case !isFailing && !isDone && !r.o.isDeleted:
		requests, later := r.manage()
		if len(requests) > 0 {
			return send(requests...)
		}
		again = earlier(again, later)
		r.tellSuspension()
	}
	if isDone && !isFailing && r.condition(batchv1.JobSuccessCriteriaMet) == nil {
		r.set(batchv1.JobSuccessCriteriaMet, corev1.ConditionTrue, batchv1.JobReasonCompletionsReached,
			"Reached expected number of succeeded pods")
	}
	s.Active, s.Ready, s.Terminating = int32(len(r.active)), &r.ready, &r.terminating
	finalizer := r.track(isFailing || isDone)
	if finalizer == nil && r.terminating == 0 && len(s.UncountedTerminatedPods.Succeeded) == 0 &&
		len(s.UncountedTerminatedPods.Failed) == 0 {
		r.end()
	}
	if !apiequality.Semantic.DeepEqual(s, &r.job.Status) {
		return send(update(manager, r.o, "status", r.next))
	}
	if finalizer != nil {
		return send(finalizer)
	}
	return decision{again: again}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// judgeFailure sets the condition FailureTarget of a Job that has failed. It returns when a deadline passes.
func (r *jobRun) judgeFailure() time.Time {
	if r.condition(batchv1.JobFailureTarget) != nil || r.condition(batchv1.JobSuccessCriteriaMet) != nil {
		return time.Time{}
	}
	limit := int32(6)
	if r.job.Spec.BackoffLimit != nil {
		limit = *r.job.Spec.BackoffLimit
	}
	if r.failed > limit || r.restartsExceed(limit) {
		r.set(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonBackoffLimitExceeded,
			"Job has reached the specified backoff limit")
		return time.Time{}
	}
	seconds := r.job.Spec.ActiveDeadlineSeconds
	if seconds == nil || r.isSuspended() {
		return time.Time{}
	}
	at := r.next.Status.StartTime.Add(time.Duration(*seconds) * time.Second)
	if at.After(time.Now()) {
		return at
	}
	r.set(batchv1.JobFailureTarget, corev1.ConditionTrue, batchv1.JobReasonDeadlineExceeded,
		"Job was active longer than specified deadline")
	return time.Time{}
}

// restartsExceed reports whether the containers of the pods were restarted too often.
func (r *jobRun) restartsExceed(limit int32) bool {
	if r.job.Spec.Template.Spec.RestartPolicy != corev1.RestartPolicyOnFailure {
		return false
	}
	n := int32(0)
	for _, p := range r.pods {
		pod := as[corev1.Pod](p)
		if pod.Status.Phase != corev1.PodRunning && pod.Status.Phase != corev1.PodPending {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			n += c.RestartCount
		}
	}
	return n > 0 && n >= limit
}

// isDone reports whether enough pods have succeeded.
func (r *jobRun) isDone() bool {
	if r.condition(batchv1.JobSuccessCriteriaMet) != nil {
		return true
	}
	if r.job.Spec.Completions == nil && r.parallelism() != 1 {
		return r.succeeded > 0 && len(r.active) == 0
	}
	return r.succeeded >= r.completions() && len(r.active) == 0
}

func (r *jobRun) parallelism() int32 { return replicasOf(r.job.Spec.Parallelism) }

// completions is 1 by default, if the parallelism is, too.
func (r *jobRun) completions() int32 { return replicasOf(r.job.Spec.Completions) }

// manage returns the next writes to the pods of a Job that runs, or when there will be some.
func (r *jobRun) manage() ([]*request, time.Time) {
	if r.isSuspended() {
		if len(r.active) > 0 {
			return withdraw(r.active[0]), time.Time{}
		}
		return nil, time.Time{}
	}
	n := int32(len(r.active))
	want := r.parallelism()
	switch {
	case r.job.Spec.Completions == nil && want != 1:
		if r.succeeded > 0 {
			want = n
		}
	default:
		want = max(0, min(want, r.completions()-r.succeeded))
	}
	if isIndexed(r.job) {
		if p := r.superfluous(); p != nil {
			return withdraw(p), time.Time{}
		}
	}
	if n > want {
		return withdraw(slices.MinFunc(r.active, deletedFirst)), time.Time{}
	}
	if r.replacesOnlyFailed() {
		n += r.terminating
	}
	if n >= want {
		return nil, time.Time{}
	}
	if at := r.backOff(); at.After(time.Now()) {
		return nil, at
	}
	pod := newPod(&r.job.Spec.Template, r.o, jobKind)
	pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[batchv1.ControllerUidLabel], pod.Labels["controller-uid"] = string(r.o.uid), string(r.o.uid)
	pod.Labels[batchv1.JobNameLabel], pod.Labels["job-name"] = r.o.name, r.o.name
	if isIndexed(r.job) {
		setIndex(pod, r.o.name, r.pendingIndex())
	}
	return []*request{createPod(pod)}, time.Time{}
}

// withdraw returns the requests that delete a pod without counting it as failed.
func withdraw(p *object) []*request {
	requests := []*request{remove(manager, p, "", nil)}
	if p.hasFinalizer(batchv1.JobTrackingFinalizer) {
		requests = slices.Insert(requests, 0, withoutFinalizer(p, batchv1.JobTrackingFinalizer))
	}
	return requests
}

// backOff returns when a pod that failed may be replaced.
func (r *jobRun) backOff() time.Time {
	var last, success time.Time
	n := 0
	finish := func(p *object) time.Time {
		pod, at := as[corev1.Pod](p), time.Time{}
		for _, c := range pod.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil && t.FinishedAt.After(at) {
				at = t.FinishedAt.Time
			}
		}
		if at.IsZero() && pod.DeletionTimestamp != nil {
			at = pod.DeletionTimestamp.Time
		}
		return at
	}
	for _, p := range r.pods {
		if as[corev1.Pod](p).Status.Phase == corev1.PodSucceeded {
			if at := finish(p); at.After(success) {
				success = at
			}
		}
	}
	for _, p := range r.pods {
		if at := finish(p); as[corev1.Pod](p).Status.Phase == corev1.PodFailed && at.After(success) {
			n++
			if at.After(last) {
				last = at
			}
		}
	}
	if n == 0 {
		return time.Time{}
	}
	return last.Add(min(firstJobBackOff<<min(n-1, 10), maxJobBackOff))
}

// tellSuspension sets the condition Suspended.
func (r *jobRun) tellSuspension() {
	c := r.condition(batchv1.JobSuspended)
	switch isTold := c != nil && c.Status == corev1.ConditionTrue; {
	case r.isSuspended() && !isTold:
		r.set(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")
		r.next.Status.StartTime = nil
	case !r.isSuspended() && isTold:
		r.set(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")
		r.next.Status.StartTime = new(metav1.Now())
	}
}

// track notes the uids of ended pods in the status, and counts those whose finalizer is gone. It returns the request
// that removes the next finalizer; nil if there is none to remove.
func (r *jobRun) track(isEnding bool) *request {
	s := &r.next.Status
	u := s.UncountedTerminatedPods
	tracked := map[types.UID]bool{}
	for _, p := range r.pods {
		tracked[p.uid] = p.hasFinalizer(batchv1.JobTrackingFinalizer)
	}
	settle := func(list []types.UID, counter *int32) []types.UID {
		n := len(list)
		list = slices.DeleteFunc(list, func(uid types.UID) bool { return !tracked[uid] })
		*counter += int32(n - len(list))
		return list
	}
	u.Succeeded, u.Failed = settle(u.Succeeded, &s.Succeeded), settle(u.Failed, &s.Failed)
	var first *request
	for _, p := range r.pods {
		if !tracked[p.uid] {
			continue
		}
		switch hasSucceeded := as[corev1.Pod](p).Status.Phase == corev1.PodSucceeded; {
		case hasSucceeded && !slices.Contains(u.Failed, p.uid):
			if !isIndexed(r.job) && !slices.Contains(u.Succeeded, p.uid) {
				u.Succeeded = append(u.Succeeded, p.uid)
			}
		case r.isFailed(p) || isEnding && r.condition(batchv1.JobFailureTarget) != nil:
			if !slices.Contains(u.Failed, p.uid) {
				u.Failed = append(u.Failed, p.uid)
			}
		case !r.o.isDeleted && !isEnding:
			continue
		}
		first = cmp.Or(first, withoutFinalizer(p, batchv1.JobTrackingFinalizer))
	}
	if isIndexed(r.job) {
		s.Succeeded, s.CompletedIndexes = r.succeeded, formatIndexes(r.indexes)
	}
	return first
}

// end sets the condition of a Job that has ended.
func (r *jobRun) end() {
	if c := r.condition(batchv1.JobFailureTarget); c != nil && len(r.active) == 0 {
		r.set(batchv1.JobFailed, corev1.ConditionTrue, c.Reason, c.Message)
	} else if c := r.condition(batchv1.JobSuccessCriteriaMet); c != nil {
		r.set(batchv1.JobComplete, corev1.ConditionTrue, c.Reason, c.Message)
		r.next.Status.CompletionTime = new(metav1.Now())
	}
}

// releasePod removes the finalizer of a pod whose Job is gone or has ended.
func releasePod(w *world, o *object) decision {
	ref := o.controllerOf()
	if ref != nil && ref.Kind == "Job" {
		if job := w.byUID[ref.UID]; job != nil && jobEnd(as[batchv1.Job](job)) == nil {
			return decision{}
		}
	}
	if !o.hasFinalizer(batchv1.JobTrackingFinalizer) {
		return decision{}
	}
	return send(withoutFinalizer(o, batchv1.JobTrackingFinalizer))
}
