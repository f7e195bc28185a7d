package controllers

import (
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// status brings the status up to date. If rolls, it also tells of the progress.
func (r *rollout) status(rolls bool) decision {
	next := r.d.DeepCopy()
	s := &next.Status
	all := r.all()
	s.ObservedGeneration = r.d.Generation
	s.Replicas = sum(all, func(s *set) int32 { return s.rs.Status.Replicas })
	s.UpdatedReplicas = 0
	if r.new != nil {
		s.UpdatedReplicas = r.new.rs.Status.Replicas
	}
	s.ReadyReplicas = sum(all, func(s *set) int32 { return s.rs.Status.ReadyReplicas })
	s.AvailableReplicas = sum(all, available)
	s.UnavailableReplicas = max(0, sum(all, (*set).size)-s.AvailableReplicas)
	s.TerminatingReplicas = terminating(all)
	if s.AvailableReplicas >= r.replicas-r.unavail {
		setDeploymentCondition(next, appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability.")
	} else {
		setDeploymentCondition(next, appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability.")
	}
	if rolls {
		r.progress(next)
		r.copyFailure(next)
	}
	if !apiequality.Semantic.DeepEqual(next.Status, r.d.Status) {
		return send(r.update(next))
	}
	if c := progressing(r.d); rolls && r.hasDeadline() && c != nil && !r.isComplete(s) && c.Reason != timedOut {
		return decision{again: c.LastUpdateTime.Add(r.deadline() + time.Second)}
	}
	return decision{}
}

func terminating(sets []*set) *int32 {
	n := int32(0)
	for _, s := range sets {
		switch t := s.rs.Status.TerminatingReplicas; {
		case t != nil:
			n += *t
		case s.rs.Status.ObservedGeneration != 0:
			return nil
		}
	}
	return &n
}

// Reasons of the condition Progressing.
const (
	timedOut  = "ProgressDeadlineExceeded"
	completed = "NewReplicaSetAvailable"
)

func (r *rollout) deadline() time.Duration {
	if s := r.d.Spec.ProgressDeadlineSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 600 * time.Second
}

func (r *rollout) hasDeadline() bool { return r.deadline() != math.MaxInt32*time.Second }

func (r *rollout) isComplete(s *appsv1.DeploymentStatus) bool {
	return s.UpdatedReplicas == r.replicas && s.Replicas == r.replicas && s.AvailableReplicas == r.replicas &&
		s.ObservedGeneration >= r.d.Generation
}

// progress sets the condition Progressing of the next state.
func (r *rollout) progress(next *appsv1.Deployment) {
	name := fmt.Sprintf("Deployment %q", r.o.name)
	if r.new != nil {
		name = fmt.Sprintf("ReplicaSet %q", r.new.o.name)
	}
	s, before, c := &next.Status, &r.d.Status, progressing(r.d)
	switch {
	case !r.hasDeadline():
		removeDeploymentCondition(next, appsv1.DeploymentProgressing)
	case s.Replicas == s.UpdatedReplicas && c != nil && c.Reason == completed:
	case r.isComplete(s):
		setDeploymentCondition(next, appsv1.DeploymentProgressing, corev1.ConditionTrue, completed,
			name+" has successfully progressed.")
	case s.UpdatedReplicas > before.UpdatedReplicas ||
		s.Replicas-s.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		s.ReadyReplicas > before.ReadyReplicas || s.AvailableReplicas > before.AvailableReplicas:
		if c != nil {
			removeDeploymentCondition(next, appsv1.DeploymentProgressing)
		}
		setDeploymentCondition(next, appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated",
			name+" is progressing.")
		if c != nil && c.Status == corev1.ConditionTrue {
			progressing(next).LastTransitionTime = c.LastTransitionTime
		}
	case c != nil && c.Reason != completed && c.Reason != timedOut &&
		c.LastUpdateTime.Add(r.deadline()).Before(time.Now()):
		setDeploymentCondition(next, appsv1.DeploymentProgressing, corev1.ConditionFalse, timedOut,
			name+" has timed out progressing.")
	}
}

// copyFailure shows the failure of a ReplicaSet.
func (r *rollout) copyFailure(next *appsv1.Deployment) {
	sets := r.old
	if r.new != nil {
		sets = append([]*set{r.new}, r.old...)
	}
	for _, s := range sets {
		for _, c := range s.rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				setDeploymentCondition(next, appsv1.DeploymentReplicaFailure, c.Status, c.Reason, c.Message)
				return
			}
		}
	}
	removeDeploymentCondition(next, appsv1.DeploymentReplicaFailure)
}

// paused returns the Deployment with a condition that tells of a pause or its end; nil if it has that.
func (r *rollout) paused() *appsv1.Deployment {
	c := progressing(r.d)
	if !r.hasDeadline() || c != nil && c.Reason == timedOut {
		return nil
	}
	told := c != nil && c.Reason == "DeploymentPaused"
	next := r.d.DeepCopy()
	switch {
	case r.d.Spec.Paused && !told:
		setDeploymentCondition(next, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentPaused",
			"Deployment is paused")
	case !r.d.Spec.Paused && told:
		setDeploymentCondition(next, appsv1.DeploymentProgressing, corev1.ConditionUnknown, "DeploymentResumed",
			"Deployment is resumed")
	default:
		return nil
	}
	return next
}

func deploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == kind {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func progressing(d *appsv1.Deployment) *appsv1.DeploymentCondition {
	return deploymentCondition(d, appsv1.DeploymentProgressing)
}

// setDeploymentCondition sets a condition, unless it has the same status and reason.
func setDeploymentCondition(
	d *appsv1.Deployment, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string,
) {
	next := appsv1.DeploymentCondition{
		Type: kind, Status: status, Reason: reason, Message: message,
		LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
	if old := deploymentCondition(d, kind); old != nil {
		if old.Status == status && old.Reason == reason {
			return
		}
		if old.Status == status {
			next.LastTransitionTime = old.LastTransitionTime
		}
	}
	removeDeploymentCondition(d, kind)
	d.Status.Conditions = append(d.Status.Conditions, next)
}

func removeDeploymentCondition(d *appsv1.Deployment, kind appsv1.DeploymentConditionType) {
	d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions,
		func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
