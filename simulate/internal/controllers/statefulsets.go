package controllers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

var statefulSetKind = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"}

// templates remembers the pod templates of a StatefulSet by their revisions, in place of ControllerRevisions.
type templates struct {
	generation int64
	latest     string // the revision of that generation
	byRevision map[string]*corev1.PodTemplateSpec
}

// latestOf returns the revision of the present template.
func (w *world) latestOf(o *object, set *appsv1.StatefulSet) (string, *templates) {
	t := w.history[o.uid]
	if t == nil {
		t = &templates{byRevision: map[string]*corev1.PodTemplateSpec{}}
		w.history[o.uid] = t
	}
	if t.latest == "" || t.generation != set.Generation {
		t.generation, t.latest = set.Generation, set.Name+"-"+templateHash(&set.Spec.Template, nil)
		t.byRevision[t.latest] = &set.Spec.Template
	}
	return t.latest, t
}

// statefulRollout is the state of one StatefulSet, for one decision.
type statefulRollout struct {
	w               *world
	o               *object
	set             *appsv1.StatefulSet
	templates       *templates
	current, latest string    // revisions
	first           int       // ordinal
	replicas        []*object // by ordinal; nil if there is no pod
	condemned       []*object // highest ordinal first
	available       *availability
}

// rollStatefulSet is the controller of StatefulSets. It follows updateStatefulSet of the real one.
func rollStatefulSet(w *world, o *object) decision {
	set := as[appsv1.StatefulSet](o)
	var candidates []*object
	for _, p := range w.all(pods, o.namespace) {
		if _, ok := ordinal(set, p.name); ok {
			candidates = append(candidates, p)
		}
	}
	owned, adopt := claim(o, statefulSetKind, set.Spec.Selector, candidates)
	if adopt != nil {
		return send(adopt)
	}
	r := newStatefulRollout(w, o, set, owned)
	if !o.isDeleted {
		if next := r.next(); next != nil {
			return send(next)
		}
	}
	return r.status()
}

func newStatefulRollout(w *world, o *object, set *appsv1.StatefulSet, owned []*object) *statefulRollout {
	r := &statefulRollout{w: w, o: o, set: set, available: newAvailability(set.Spec.MinReadySeconds)}
	r.latest, r.templates = w.latestOf(o, set)
	if r.current = set.Status.CurrentRevision; r.current == "" || r.templates.byRevision[r.current] == nil {
		r.current = r.latest
	}
	if set.Spec.Ordinals != nil {
		r.first = int(set.Spec.Ordinals.Start)
	}
	r.replicas = make([]*object, replicasOf(set.Spec.Replicas))
	for _, p := range owned {
		n, _ := ordinal(set, p.name)
		if i := n - r.first; i >= 0 && i < len(r.replicas) {
			r.replicas[i] = p
		} else {
			r.condemned = append(r.condemned, p)
		}
	}
	slices.SortFunc(r.condemned, func(a, b *object) int {
		m, _ := ordinal(set, a.name)
		n, _ := ordinal(set, b.name)
		return n - m
	})
	return r
}

// ordinal returns the number at the end of a pod's name, if it is a name that the set gives.
func ordinal(set *appsv1.StatefulSet, pod string) (int, bool) {
	text, ok := strings.CutPrefix(pod, set.Name+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == text
}

// isUnavailable reports whether a replica is missing, not available, or being deleted.
func (r *statefulRollout) isUnavailable(p *object) bool {
	return p == nil || p.isDeleted || !r.isAvailable(p)
}

func (r *statefulRollout) isAvailable(p *object) bool { return r.available.holds(as[corev1.Pod](p)) }

// next returns the next write to pods and claims; nil if the set waits or is complete.
func (r *statefulRollout) next() *request {
	isOrdered := r.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	for i, p := range r.replicas {
		if p != nil && !p.isDeleted {
			if retain := r.retain(p, r.first+i, false); retain != nil {
				return retain
			}
		}
		switch {
		case p == nil:
			return r.create(r.first + i)
		case simnode.IsFinished(as[corev1.Pod](p)):
			if !p.isDeleted {
				return remove(manager, p, "", nil)
			}
			if isOrdered {
				return nil
			}
		case as[corev1.Pod](p).Status.Phase == corev1.PodPending && !p.isDeleted:
			if missing := r.missingClaim(r.first + i); missing != nil {
				return missing
			}
		}
		if isOrdered && (p.isDeleted || as[corev1.Pod](p).Status.Phase != corev1.PodRunning || !r.isAvailable(p)) {
			return nil
		}
	}
	for _, p := range r.condemned {
		n, _ := ordinal(r.set, p.name)
		if retain := r.retain(p, n, true); retain != nil {
			return retain
		}
	}
	for _, p := range r.condemned {
		switch {
		case p.isDeleted && isOrdered:
			return nil
		case p.isDeleted:
			continue
		case isOrdered && !r.isAvailable(p) && p != r.firstUnavailable():
			return nil
		}
		return remove(manager, p, "", nil)
	}
	return r.replace()
}

func (r *statefulRollout) firstUnavailable() *object {
	for i := len(r.condemned) - 1; i >= 0; i-- {
		if r.isUnavailable(r.condemned[i]) {
			return r.condemned[i]
		}
	}
	return nil
}

// replace deletes the pod with the highest ordinal that has an old revision.
func (r *statefulRollout) replace() *request {
	if r.set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	for i := len(r.replicas) - 1; i >= r.partition(); i-- {
		p := r.replicas[i]
		if !p.isDeleted && revisionLabel(p) != r.latest {
			return remove(manager, p, "", nil)
		}
		if r.isUnavailable(p) {
			return nil
		}
	}
	return nil
}

func (r *statefulRollout) partition() int {
	if ru := r.set.Spec.UpdateStrategy.RollingUpdate; ru != nil && ru.Partition != nil {
		return int(*ru.Partition)
	}
	return 0
}

func revisionLabel(p *object) string { return p.u.GetLabels()[appsv1.ControllerRevisionHashLabelKey] }

// create returns the request that creates a pod, or a claim that the pod needs.
func (r *statefulRollout) create(n int) *request {
	if missing := r.missingClaim(n); missing != nil {
		return missing
	}
	if r.isStale(n) {
		return nil
	}
	rev := r.latest
	if r.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType && n < r.first+r.partition() {
		rev = r.current
	}
	pod := newPod(r.templates.byRevision[rev], r.o, statefulSetKind)
	pod.Name = fmt.Sprintf("%s-%d", r.set.Name, n)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(n)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = rev
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, r.set.Spec.ServiceName
	var own []corev1.Volume
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		own = append(own, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: r.claimName(t.Name, n)},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(own, func(o corev1.Volume) bool { return o.Name == v.Name }) {
			own = append(own, v)
		}
	}
	pod.Spec.Volumes = own
	return createPod(pod)
}

func (r *statefulRollout) claimName(template string, n int) string {
	return fmt.Sprintf("%s-%s-%d", template, r.set.Name, n)
}

// missingClaim returns the request that creates the first missing claim of a pod; nil if none is missing.
func (r *statefulRollout) missingClaim(n int) *request {
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		name := r.claimName(t.Name, n)
		if r.w.get(claims, r.o.namespace, name) != nil {
			continue
		}
		claim := t.DeepCopy()
		claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		claim.Namespace, claim.Name, claim.Status = r.o.namespace, name, corev1.PersistentVolumeClaimStatus{}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, r.set.Spec.Selector.MatchLabels)
		return create(manager, claims, r.o.namespace, claim)
	}
	return nil
}

// retain returns the request that lets the garbage collector delete a claim of a pod as the retention policy says; nil
// if the claims have the right owners.
func (r *statefulRollout) retain(p *object, n int, isCondemned bool) *request {
	policy := r.set.Spec.PersistentVolumeClaimRetentionPolicy
	if policy == nil {
		policy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{}
	}
	deletes := appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		c := r.w.get(claims, r.o.namespace, r.claimName(t.Name, n))
		if c == nil || c.isDeleted {
			continue
		}
		owners, isForeign := []metav1.OwnerReference{}, false
		for _, ref := range c.owners {
			if ref.UID != r.o.uid && ref.UID != p.uid {
				owners = append(owners, ref)
				isForeign = isForeign || ref.Controller != nil && *ref.Controller
			}
		}
		switch {
		case isForeign:
			continue
		case isCondemned && policy.WhenScaled == deletes:
			owners = append(owners, *controllerRef(p, metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}))
		case policy.WhenDeleted == deletes:
			owners = append(owners, *controllerRef(r.o, statefulSetKind))
		}
		if !apiequality.Semantic.DeepEqual(owners, c.owners) {
			return withOwners(c, owners)
		}
	}
	return nil
}

// isStale reports whether a claim of a pod belongs to a pod that is gone, and is deleted with it.
func (r *statefulRollout) isStale(n int) bool {
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		c := r.w.get(claims, r.o.namespace, r.claimName(t.Name, n))
		if c == nil {
			continue
		}
		for _, ref := range c.owners {
			if ref.Kind == "Pod" && ref.Name == fmt.Sprintf("%s-%d", r.set.Name, n) {
				return true
			}
		}
	}
	return false
}

// status brings the status up to date.
func (r *statefulRollout) status() decision {
	next := r.set.DeepCopy()
	s := &next.Status
	s.ObservedGeneration = r.set.Generation
	s.CurrentRevision, s.UpdateRevision = r.current, r.latest
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas = 0, 0, 0, 0, 0
	if s.CollisionCount == nil {
		s.CollisionCount = new(int32)
	}
	for _, p := range append(slices.Clone(r.replicas), r.condemned...) {
		if p == nil {
			continue
		}
		pod := as[corev1.Pod](p)
		s.Replicas++
		if isReady(pod) && pod.Status.Phase == corev1.PodRunning {
			s.ReadyReplicas++
			if r.isAvailable(p) {
				s.AvailableReplicas++
			}
		}
		if !p.isDeleted && revisionLabel(p) == r.current {
			s.CurrentReplicas++
		}
		if !p.isDeleted && revisionLabel(p) == r.latest {
			s.UpdatedReplicas++
		}
	}
	if n := int32(len(r.replicas)); r.set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType &&
		s.UpdatedReplicas == n && s.ReadyReplicas == n && s.Replicas == n {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
	if apiequality.Semantic.DeepEqual(next.Status, r.set.Status) {
		return decision{again: r.available.next}
	}
	return send(update(manager, r.o, "status", next))
}
