package controllers

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

var deploymentKind = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}

// Annotations of Deployments and their ReplicaSets.
const (
	revisionOf      = "deployment.kubernetes.io/revision"
	historyOf       = "deployment.kubernetes.io/revision-history"
	desiredReplicas = "deployment.kubernetes.io/desired-replicas"
	maxReplicas     = "deployment.kubernetes.io/max-replicas"
)

// notCopied are the annotations of a Deployment that its ReplicaSets do not get.
var notCopied = []string{
	corev1.LastAppliedConfigAnnotation, revisionOf, historyOf, desiredReplicas, maxReplicas,
	appsv1.DeprecatedRollbackTo,
}

// set is a ReplicaSet of a Deployment.
type set struct {
	o  *object
	rs *appsv1.ReplicaSet
}

func (s *set) size() int32 {
	if s == nil {
		return 0
	}
	return replicasOf(s.rs.Spec.Replicas)
}

// rollout is the state of one Deployment, for one decision.
type rollout struct {
	w         *world
	o         *object
	d         *appsv1.Deployment
	replicas  int32
	surge     int32
	unavail   int32
	isRolling bool
	old       []*set // oldest first
	new       *set   // nil if there is none yet
}

// rollDeployment is the controller of Deployments. It follows syncDeployment of the real one.
func rollDeployment(w *world, o *object) decision {
	d := as[appsv1.Deployment](o)
	owned, adopt := claim(o, deploymentKind, d.Spec.Selector, w.all(replicaSets, o.namespace))
	if adopt != nil {
		return send(adopt)
	}
	r := newRollout(w, o, d, owned)
	if o.isDeleted {
		return r.status(false)
	}
	if next := r.paused(); next != nil {
		return send(r.update(next))
	}
	if d.Spec.Paused || r.isScaled() {
		return r.scale()
	}
	if r.isRolling {
		return r.roll()
	}
	return r.recreate()
}

func newRollout(w *world, o *object, d *appsv1.Deployment, owned []*object) *rollout {
	r := &rollout{
		w: w, o: o, d: d, replicas: replicasOf(d.Spec.Replicas),
		isRolling: d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType,
	}
	quarter := intstr.FromString("25%")
	surge, unavail := &quarter, &quarter
	if ru := d.Spec.Strategy.RollingUpdate; ru != nil {
		surge, unavail = cmp.Or(ru.MaxSurge, surge), cmp.Or(ru.MaxUnavailable, unavail)
	}
	if r.isRolling {
		s, _ := intstr.GetScaledValueFromIntOrPercent(surge, int(r.replicas), true) // the server has checked both
		u, _ := intstr.GetScaledValueFromIntOrPercent(unavail, int(r.replicas), false)
		if s == 0 && u == 0 {
			u = 1
		}
		r.surge, r.unavail = int32(s), min(int32(u), r.replicas)
	}
	for _, o := range owned {
		r.old = append(r.old, &set{o, as[appsv1.ReplicaSet](o)})
	}
	slices.SortFunc(r.old, byAge)
	isNew := func(s *set) bool { return sameTemplate(&s.rs.Spec.Template, &d.Spec.Template) }
	if i := slices.IndexFunc(r.old, isNew); i >= 0 {
		r.new = r.old[i]
		r.old = slices.Delete(r.old, i, i+1)
	}
	return r
}

func byAge(a, b *set) int {
	return cmp.Or(a.rs.CreationTimestamp.Compare(b.rs.CreationTimestamp.Time), strings.Compare(a.o.name, b.o.name))
}

// sameTemplate compares two templates without the hash that a Deployment adds.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return apiequality.Semantic.DeepEqual(a, b)
}

// all returns the old ReplicaSets and the new one.
func (r *rollout) all() []*set {
	if r.new == nil {
		return slices.Clone(r.old)
	}
	return append(slices.Clone(r.old), r.new)
}

func active(sets []*set) []*set {
	return slices.DeleteFunc(slices.Clone(sets), func(s *set) bool { return s.size() == 0 })
}

func sum(sets []*set, of func(*set) int32) (n int32) {
	for _, s := range sets {
		n += of(s)
	}
	return n
}

func available(s *set) int32 { return s.rs.Status.AvailableReplicas }

// update returns the request that replaces the status, with the revision in the annotations.
func (r *rollout) update(next *appsv1.Deployment) *request {
	return update(manager, r.o, "status", next)
}

// roll replaces pods step by step.
func (r *rollout) roll() decision {
	if d, ok := r.ensureNew(true); !ok {
		return d
	}
	if r.new.size() != r.replicas {
		if n := r.newSize(r.new); n != r.new.size() {
			return send(r.resize(r.new, n))
		}
	}
	if d := r.shrinkOld(); len(d.requests) > 0 {
		return d
	}
	if d := r.cleanUp(); len(d.requests) > 0 {
		return d
	}
	return r.status(true)
}

// recreate ends all old pods before it makes new ones.
func (r *rollout) recreate() decision {
	if d, ok := r.ensureNew(false); !ok {
		return d
	}
	for _, s := range active(r.old) {
		return send(r.resize(s, 0))
	}
	for _, s := range r.old {
		for _, o := range r.w.dependents(s.o.uid) {
			if o.resource == pods && !simnode.IsFinished(as[corev1.Pod](o)) {
				return r.status(true)
			}
		}
	}
	if d, ok := r.ensureNew(true); !ok {
		return d
	}
	if r.new.size() != r.replicas {
		return send(r.resize(r.new, r.replicas))
	}
	if d := r.cleanUp(); len(d.requests) > 0 {
		return d
	}
	return r.status(true)
}

// newSize returns the number of replicas that the new ReplicaSet may have now.
func (r *rollout) newSize(s *set) int32 {
	if !r.isRolling || s.size() > r.replicas {
		return r.replicas
	}
	all := sum(r.all(), (*set).size)
	if r.new == nil {
		all += s.size()
	}
	if room := r.replicas + r.surge - all; room > 0 {
		return s.size() + min(room, r.replicas-s.size())
	}
	return s.size()
}

// shrinkOld takes replicas from an old ReplicaSet as far as enough pods stay available: first those that are not.
func (r *rollout) shrinkOld() decision {
	old := active(r.old)
	if len(old) == 0 {
		return decision{}
	}
	least := r.replicas - r.unavail
	spare := sum(r.all(), (*set).size) - least - (r.new.size() - available(r.new))
	if spare <= 0 {
		return decision{}
	}
	for _, s := range old {
		if unhealthy := s.size() - available(s); unhealthy > 0 {
			return send(r.resize(s, s.size()-min(spare, unhealthy)))
		}
	}
	if n := sum(r.all(), available) - least; n > 0 {
		return send(r.resize(old[0], old[0].size()-min(n, old[0].size())))
	}
	return decision{}
}

// resize returns the request that gives a ReplicaSet a number of replicas.
func (r *rollout) resize(s *set, n int32) *request {
	next := s.rs.DeepCopy()
	next.Spec.Replicas = &n
	r.annotate(next)
	return update(manager, s.o, "", next)
}

func (r *rollout) annotate(rs *appsv1.ReplicaSet) {
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, desiredReplicas, strconv.Itoa(int(r.replicas)))
	metav1.SetMetaDataAnnotation(&rs.ObjectMeta, maxReplicas, strconv.Itoa(int(r.replicas+r.surge)))
}

// isScaled reports whether the number of replicas has changed since the ReplicaSets were sized.
func (r *rollout) isScaled() bool {
	for _, s := range active(r.all()) {
		if n, err := strconv.Atoi(s.rs.Annotations[desiredReplicas]); err == nil && int32(n) != r.replicas {
			return true
		}
	}
	return false
}

// scale spreads a new number of replicas over the ReplicaSets, in proportion to their sizes.
func (r *rollout) scale() decision {
	if d, ok := r.ensureNew(false); !ok {
		return d
	}
	sets := active(r.all())
	switch only := r.activeOrLatest(); {
	case only != nil:
		if only.size() != r.replicas {
			return send(r.resize(only, r.replicas))
		}
	case r.isSaturated():
		for _, s := range active(r.old) {
			return send(r.resize(s, 0))
		}
	case r.isRolling && len(sets) > 0:
		if d := r.spread(sets); len(d.requests) > 0 {
			return d
		}
	}
	if r.d.Spec.Paused {
		if d := r.cleanUp(); len(d.requests) > 0 {
			return d
		}
	}
	return r.status(false)
}

func (r *rollout) activeOrLatest() *set {
	switch sets := active(r.all()); {
	case len(sets) == 1:
		return sets[0]
	case len(sets) > 1:
		return nil
	case r.new != nil:
		return r.new
	case len(r.old) > 0:
		return r.old[len(r.old)-1]
	}
	return nil
}

func (r *rollout) isSaturated() bool {
	return r.new != nil && r.new.size() == r.replicas && available(r.new) == r.replicas &&
		r.new.rs.Annotations[desiredReplicas] == strconv.Itoa(int(r.replicas))
}

// spread returns the first of the updates that share the replicas. All are computed from the state before the first, so
// they are sent one after the other.
func (r *rollout) spread(sets []*set) decision {
	allowed := int32(0)
	if r.replicas > 0 {
		allowed = r.replicas + r.surge
	}
	add := allowed - sum(sets, (*set).size)
	slices.SortStableFunc(sets, func(a, b *set) int {
		age := byAge(a, b)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(b.size(), a.size()), age)
	})
	sizes, added := make([]int32, len(sets)), int32(0)
	for i, s := range sets {
		share := int32(0)
		if left := add - added; add != 0 && left != 0 {
			share = r.fraction(s)
			if add > 0 {
				share = min(share, left)
			} else {
				share = max(share, left)
			}
		}
		sizes[i] = s.size() + share
		added += share
	}
	if add != 0 {
		sizes[0] = max(0, sizes[0]+add-added)
	}
	var requests []*request
	for i, s := range sets {
		next := s.rs.DeepCopy()
		r.annotate(next)
		if sizes[i] != s.size() || !apiequality.Semantic.DeepEqual(next.Annotations, s.rs.Annotations) {
			requests = append(requests, r.resize(s, sizes[i]))
		}
	}
	return send(requests...)
}

func (r *rollout) fraction(s *set) int32 {
	if r.replicas == 0 {
		return -s.size()
	}
	before, err := strconv.Atoi(s.rs.Annotations[maxReplicas])
	if err != nil || before == 0 {
		if before = int(r.d.Status.Replicas); before == 0 {
			return 0
		}
	}
	size := float64(s.size()*(r.replicas+r.surge)) / float64(before)
	return int32(math.Round(size)) - s.size()
}

// ensureNew makes the new ReplicaSet carry its revision and annotations, and the Deployment the revision of it. It is
// false with the write that comes first. If creates, it also creates the new ReplicaSet.
func (r *rollout) ensureNew(creates bool) (decision, bool) {
	newest := int64(0)
	for _, s := range r.old {
		newest = max(newest, revision(s.rs.Annotations))
	}
	switch {
	case r.new == nil && !creates:
		return decision{}, true
	case r.new == nil:
		return r.createNew(newest + 1), false
	}
	next := r.new.rs.DeepCopy()
	if r.copyAnnotations(next, newest+1) || next.Spec.MinReadySeconds != r.d.Spec.MinReadySeconds {
		next.Spec.MinReadySeconds = r.d.Spec.MinReadySeconds
		return send(update(manager, r.new.o, "", next)), false
	}
	d := r.d.DeepCopy()
	changed := d.Annotations[revisionOf] != r.new.rs.Annotations[revisionOf]
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, revisionOf, r.new.rs.Annotations[revisionOf])
	if r.hasDeadline() && progressing(d) == nil {
		setDeploymentCondition(d, appsv1.DeploymentProgressing, corev1.ConditionTrue, "FoundNewReplicaSet",
			fmt.Sprintf("Found new replica set %q", r.new.o.name))
		changed = true
	}
	if changed {
		return send(r.update(d)), false
	}
	return decision{}, true
}

// createNew creates the new ReplicaSet, and then tells of it in the status.
func (r *rollout) createNew(rev int64) decision {
	template := r.d.Spec.Template.DeepCopy()
	hash := templateHash(template, r.d.Status.CollisionCount)
	name := r.o.name
	if n := 253 - len(hash) - 1; len(name) > n {
		name = name[:n]
	}
	name += "-" + hash
	if other := r.w.get(replicaSets, r.o.namespace, name); other != nil { // another template has the same hash
		d := r.d.DeepCopy()
		if d.Status.CollisionCount == nil {
			d.Status.CollisionCount = new(int32)
		}
		*d.Status.CollisionCount++
		return send(r.update(d))
	}
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = hash
	rs := &appsv1.ReplicaSet{
		TypeMeta: replicaSetKind,
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.o.namespace, Labels: template.Labels,
			OwnerReferences: []metav1.OwnerReference{*controllerRef(r.o, deploymentKind)},
		},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32), MinReadySeconds: r.d.Spec.MinReadySeconds,
			Selector: metav1.CloneSelectorAndAddLabel(r.d.Spec.Selector, appsv1.DefaultDeploymentUniqueLabelKey, hash),
			Template: *template,
		},
	}
	rs.Spec.Replicas = new(r.newSize(&set{rs: rs}))
	r.copyAnnotations(rs, rev)
	r.annotate(rs)
	d := r.d.DeepCopy()
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, revisionOf, strconv.FormatInt(rev, 10))
	if r.hasDeadline() {
		setDeploymentCondition(d, appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetCreated",
			fmt.Sprintf("Created new replica set %q", name))
	}
	return send(create(manager, "replicasets", r.o.namespace, rs), r.update(d))
}

// copyAnnotations gives a ReplicaSet the annotations of its Deployment and its revision. It reports whether it changed
// any.
func (r *rollout) copyAnnotations(rs *appsv1.ReplicaSet, rev int64) bool {
	changed := false
	set := func(name, value string) {
		if old, ok := rs.Annotations[name]; !ok || old != value {
			metav1.SetMetaDataAnnotation(&rs.ObjectMeta, name, value)
			changed = true
		}
	}
	for _, name := range sortedKeys(r.d.Annotations) {
		if !slices.Contains(notCopied, name) {
			set(name, r.d.Annotations[name])
		}
	}
	if before, ok := rs.Annotations[revisionOf]; revision(rs.Annotations) < rev {
		set(revisionOf, strconv.FormatInt(rev, 10))
		if ok { // a rollback
			history := strings.Split(rs.Annotations[historyOf], ",")
			if history[0] == "" {
				history = nil
			}
			set(historyOf, strings.Join(append(history, before), ","))
		}
	}
	return changed
}

func revision(annotations map[string]string) int64 {
	n, _ := strconv.ParseInt(annotations[revisionOf], 10, 64) // without one: 0
	return n
}

// cleanUp deletes old ReplicaSets beyond the history limit, once the rollout is complete.
func (r *rollout) cleanUp() decision {
	limit := int32(10)
	if r.d.Spec.RevisionHistoryLimit != nil {
		limit = *r.d.Spec.RevisionHistoryLimit
	}
	if !r.d.Spec.Paused && !r.isComplete(&r.d.Status) || limit == math.MaxInt32 {
		return decision{}
	}
	old := slices.DeleteFunc(slices.Clone(r.old), func(s *set) bool { return s.o.isDeleted })
	slices.SortStableFunc(old, func(a, b *set) int {
		return cmp.Or(cmp.Compare(revision(a.rs.Annotations), revision(b.rs.Annotations)), byAge(a, b))
	})
	for _, s := range old[:max(0, len(old)-int(limit))] {
		if s.size() == 0 && s.rs.Status.Replicas == 0 && s.rs.Generation <= s.rs.Status.ObservedGeneration {
			return send(remove(manager, s.o, "", nil))
		}
	}
	return decision{}
}

// templateHash returns a hash of a template that looks like those of the real controllers.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	_ = json.NewEncoder(h).Encode(template) // cannot fail: it came from JSON
	if collisions != nil {
		_ = binary.Write(h, binary.LittleEndian, *collisions) // never fails
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}
