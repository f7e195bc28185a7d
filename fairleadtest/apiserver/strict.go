package apiserver

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// strictRules adds the rules of Options.Strict to those of a built-in kind.
func (t *table) strictRules(r rules) rules {
	switch t.res.Group + "/" + t.res.Kind {
	case "/Service":
		r.prepare = typedPrepare(t, func(next, old *corev1.Service) { prepareService(next, old, &t.allocated) })
		r.validate = typedRules(t, validateService)
	case "/Pod":
		r.prepare = func(next, old map[string]any) {
			typedPrepare(t, func(next, _ *corev1.Pod) { admitPod(&next.Spec) })(next, old)
			preparePod(next, old)
		}
		r.validate = typedRules(t, validatePod)
	case "/PersistentVolumeClaim":
		r.prepare = func(next, old map[string]any) {
			if old == nil {
				next["status"] = map[string]any{"phase": string(corev1.ClaimPending)}
			}
		}
		r.validate = typedRules(t, validateClaim)
	case "/PersistentVolume":
		r.prepare = func(next, old map[string]any) {
			if old == nil {
				next["status"] = map[string]any{"phase": string(corev1.VolumePending)}
			}
		}
	case "apps/Deployment":
		r.validate = typedRules(t, validateDeployment)
	case "apps/ReplicaSet":
		r.validate = typedRules(t, validateReplicaSet)
	case "apps/StatefulSet":
		r.validate = typedRules(t, validateStatefulSet)
	case "apps/DaemonSet":
		r.validate = typedRules(t, validateDaemonSet)
	case "batch/Job":
		r.prepare, r.validate = typedPrepare(t, prepareJob), typedRules(t, validateJob)
	case "networking.k8s.io/Ingress":
		r.validate = typedRules(t, validateIngress)
	case "policy/PodDisruptionBudget":
		r.conditional = true
		r.validate = typedRules(t, validateBudget)
	case "rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io/ClusterRole":
		r.createOnUpdate, r.name = true, nameIsSegment
		r.validate = typedRules(t, validateRole)
	case "rbac.authorization.k8s.io/RoleBinding", "rbac.authorization.k8s.io/ClusterRoleBinding":
		r.createOnUpdate, r.name = true, nameIsSegment
		r.validate = typedRules(t, validateBinding)
	}
	return r
}

// nameIsSegment allows what may stand in a path, as for roles.
func nameIsSegment(name string, _ bool) []string {
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") {
		return []string{"must be a segment of a path, without / and %"}
	}
	return nil
}

// typedRules runs a function on the Go types of an object. old is nil for a create. Content that does not fit the type
// has been refused before.
func typedRules[T any](
	t *table, check func(next, old *T) field.ErrorList,
) func(next, old map[string]any) field.ErrorList {
	return func(next, old map[string]any) field.ErrorList {
		n, o, err := decodeBoth[T](next, old)
		if err != nil {
			return field.ErrorList{field.Invalid(field.NewPath(""), t.res.Kind, err.Error())}
		}
		return check(n, o)
	}
}

// typedPrepare runs a function that changes the Go type of an object.
func typedPrepare[T any](t *table, prepare func(next, old *T)) func(next, old map[string]any) {
	return func(next, old map[string]any) {
		n, o, err := decodeBoth[T](next, old)
		if err != nil {
			return // it is refused elsewhere
		}
		prepare(n, o)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(n)
		if err != nil {
			return
		}
		for _, name := range []string{"spec", "status"} {
			take(next, content, name)
		}
		meta, _ := next["metadata"].(map[string]any)
		prepared, _ := content["metadata"].(map[string]any)
		take(meta, prepared, "labels")
	}
}

func decodeBoth[T any](next, old map[string]any) (n, o *T, err error) {
	n = new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next, n); err != nil {
		return nil, nil, err
	}
	if old == nil {
		return n, nil, nil
	}
	o = new(T)
	return n, o, runtime.DefaultUnstructuredConverter.FromUnstructured(old, o)
}

// prepareService allocates addresses and ports, and keeps the allocated ones. An address that a client chooses is not
// reserved.
func prepareService(next, old *corev1.Service, allocated *atomic.Uint32) {
	spec := &next.Spec
	if old != nil && old.Spec.Type != corev1.ServiceTypeExternalName && spec.Type != corev1.ServiceTypeExternalName {
		orDefault(&spec.ClusterIP, old.Spec.ClusterIP)
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = old.Spec.ClusterIPs
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = old.Spec.IPFamilies
		}
		if spec.IPFamilyPolicy == nil {
			spec.IPFamilyPolicy = old.Spec.IPFamilyPolicy
		}
		keepNodePorts(spec.Ports, old.Spec.Ports, spec.Type)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		if spec.ClusterIP == "" {
			n := allocated.Add(1)
			spec.ClusterIP = fmt.Sprintf("10.96.%d.%d", n>>8&0xff, n&0xff)
		}
		if len(spec.ClusterIPs) == 0 {
			spec.ClusterIPs = []string{spec.ClusterIP}
		}
		families, policy := []corev1.IPFamily{corev1.IPv4Protocol}, corev1.IPFamilyPolicySingleStack
		if spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0 {
			families, policy = append(families, corev1.IPv6Protocol), corev1.IPFamilyPolicyRequireDualStack
		}
		if len(spec.IPFamilies) == 0 {
			spec.IPFamilies = families
		}
		orNew(&spec.IPFamilyPolicy, policy)
	}
	wanted := spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeLoadBalancer && *spec.AllocateLoadBalancerNodePorts
	for i := range spec.Ports {
		if wanted && spec.Ports[i].NodePort == 0 {
			spec.Ports[i].NodePort = int32(30000 + allocated.Add(1)%2768)
		}
	}
}

func keepNodePorts(next, old []corev1.ServicePort, kind corev1.ServiceType) {
	if kind != corev1.ServiceTypeNodePort && kind != corev1.ServiceTypeLoadBalancer {
		return
	}
	for i := range next {
		for _, o := range old {
			if o.Port == next[i].Port && o.Protocol == next[i].Protocol {
				orDefault(&next[i].NodePort, o.NodePort)
			}
		}
	}
}

// prepareJob makes the selector of a job.
func prepareJob(next, old *batchv1.Job) {
	if old != nil || next.Spec.ManualSelector != nil && *next.Spec.ManualSelector {
		return
	}
	template := &next.Spec.Template
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	for _, name := range []string{"job-name", batchv1.JobNameLabel} {
		template.Labels[name] = next.Name
	}
	for _, name := range []string{"controller-uid", batchv1.ControllerUidLabel} {
		template.Labels[name] = string(next.UID)
	}
	if next.Spec.Selector == nil {
		next.Spec.Selector = &metav1.LabelSelector{}
	}
	if next.Spec.Selector.MatchLabels == nil {
		next.Spec.Selector.MatchLabels = map[string]string{}
	}
	next.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(next.UID)
	if len(next.Labels) == 0 {
		next.Labels = maps.Clone(template.Labels)
	}
}

var specPath = field.NewPath("spec")

func validateService(next, old *corev1.Service) field.ErrorList {
	var errs field.ErrorList
	spec, ports := next.Spec, specPath.Child("ports")
	external := spec.Type == corev1.ServiceTypeExternalName
	if len(spec.Ports) == 0 && !external && spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, field.Required(ports, ""))
	}
	if external && spec.ExternalName == "" {
		errs = append(errs, field.Required(specPath.Child("externalName"), ""))
	}
	if kinds := []corev1.ServiceType{
		corev1.ServiceTypeClusterIP, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer,
		corev1.ServiceTypeNodePort,
	}; !slices.Contains(kinds, spec.Type) {
		errs = append(errs, field.NotSupported(specPath.Child("type"), spec.Type, kinds))
	}
	names := map[string]bool{}
	for i, p := range spec.Ports {
		at := ports.Index(i)
		if len(utilvalidation.IsValidPortNum(int(p.Port))) > 0 {
			errs = append(errs, field.Invalid(at.Child("port"), p.Port, "must be between 1 and 65535"))
		}
		if target := p.TargetPort; target.Type == intstr.Int && len(utilvalidation.IsValidPortNum(target.IntValue())) > 0 {
			errs = append(errs, field.Invalid(at.Child("targetPort"), target, "must be between 1 and 65535"))
		}
		switch {
		case p.Name == "" && len(spec.Ports) > 1:
			errs = append(errs, field.Required(at.Child("name"), ""))
		case p.Name != "" && names[p.Name]:
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
	}
	if old != nil && old.Spec.Type != corev1.ServiceTypeExternalName && !external &&
		old.Spec.ClusterIP != spec.ClusterIP {
		errs = append(errs, field.Invalid(specPath.Child("clusterIPs").Index(0), spec.ClusterIP, "may not change once set"))
	}
	return errs
}

// immutable refuses a change of a field.
func immutable(next, old any, at *field.Path) field.ErrorList {
	return validation.ValidateImmutableField(next, old, at)
}

func validatePod(next, old *corev1.Pod) field.ErrorList {
	errs := validatePodSpec(&next.Spec, specPath)
	if old == nil {
		return errs
	}
	// Only images, the deadline and more tolerations may change.
	allowed := next.Spec.DeepCopy()
	for _, both := range [][2][]corev1.Container{
		{allowed.Containers, old.Spec.Containers}, {allowed.InitContainers, old.Spec.InitContainers},
	} {
		for i := range both[0] {
			if i < len(both[1]) {
				both[0][i].Image = both[1][i].Image
			}
		}
	}
	allowed.ActiveDeadlineSeconds, allowed.Tolerations = old.Spec.ActiveDeadlineSeconds, old.Spec.Tolerations
	allowed.SchedulingGates = old.Spec.SchedulingGates
	if !reflect.DeepEqual(*allowed, old.Spec) {
		errs = append(errs, field.Forbidden(specPath, "pod updates may not change fields other than images, "+
			"activeDeadlineSeconds and tolerations"))
	}
	return errs
}

func validatePodSpec(p *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(p.Containers) == 0 {
		errs = append(errs, field.Required(at.Child("containers"), ""))
	}
	names := map[string]bool{}
	for name, containers := range map[string][]corev1.Container{
		"containers": p.Containers, "initContainers": p.InitContainers,
	} {
		for i, c := range containers {
			at := at.Child(name).Index(i)
			if c.Image == "" {
				errs = append(errs, field.Required(at.Child("image"), ""))
			}
			switch {
			case c.Name == "":
				errs = append(errs, field.Required(at.Child("name"), ""))
			case len(utilvalidation.IsDNS1123Label(c.Name)) > 0:
				errs = append(errs, field.Invalid(at.Child("name"), c.Name, "must be a DNS label"))
			case names[c.Name]:
				errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
			}
			names[c.Name] = true
		}
	}
	volumes := map[string]bool{}
	for i, v := range p.Volumes {
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("volumes").Index(i).Child("name"), ""))
		}
		volumes[v.Name] = true
	}
	for i, c := range p.Containers {
		for j, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				errs = append(errs, field.NotFound(at.Child("containers").Index(i).Child("volumeMounts").Index(j).Child("name"),
					m.Name))
			}
		}
	}
	if policies := []corev1.RestartPolicy{
		corev1.RestartPolicyAlways, corev1.RestartPolicyNever, corev1.RestartPolicyOnFailure,
	}; !slices.Contains(policies, p.RestartPolicy) {
		errs = append(errs, field.NotSupported(at.Child("restartPolicy"), p.RestartPolicy, policies))
	}
	return errs
}

// validateTemplate checks the pod template of a workload, and that its selector matches it.
func validateTemplate(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) field.ErrorList {
	var errs field.ErrorList
	at := specPath.Child("template")
	if selector == nil {
		errs = append(errs, field.Required(specPath.Child("selector"), ""), field.Invalid(at.Child("metadata", "labels"),
			template.Labels, "`selector` does not match template `labels`"))
	} else if s, err := metav1.LabelSelectorAsSelector(selector); err != nil || s.Empty() {
		errs = append(errs, field.Invalid(specPath.Child("selector"), selector, "is empty or invalid"))
	} else if !s.Matches(labels.Set(template.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), template.Labels,
			"`selector` does not match template `labels`"))
	}
	errs = append(errs, validatePodSpec(&template.Spec, at.Child("spec"))...)
	if p := template.Spec.RestartPolicy; p != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(at.Child("spec", "restartPolicy"), p,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	return errs
}

func validateReplicas(n *int32) field.ErrorList {
	if n == nil {
		return nil
	}
	return validation.ValidateNonnegativeField(int64(*n), specPath.Child("replicas"))
}

func validateDeployment(next, old *appsv1.Deployment) field.ErrorList {
	errs := append(validateTemplate(next.Spec.Selector, &next.Spec.Template), validateReplicas(next.Spec.Replicas)...)
	if old != nil {
		errs = append(errs, immutable(next.Spec.Selector, old.Spec.Selector, specPath.Child("selector"))...)
	}
	if s := next.Spec.Strategy; s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil {
		errs = append(errs, field.Forbidden(specPath.Child("strategy", "rollingUpdate"),
			"may not be specified when strategy `type` is 'Recreate'"))
	}
	return errs
}

func validateReplicaSet(next, old *appsv1.ReplicaSet) field.ErrorList {
	errs := append(validateTemplate(next.Spec.Selector, &next.Spec.Template), validateReplicas(next.Spec.Replicas)...)
	if old != nil {
		errs = append(errs, immutable(next.Spec.Selector, old.Spec.Selector, specPath.Child("selector"))...)
	}
	return errs
}

func validateDaemonSet(next, old *appsv1.DaemonSet) field.ErrorList {
	errs := validateTemplate(next.Spec.Selector, &next.Spec.Template)
	if old != nil {
		errs = append(errs, immutable(next.Spec.Selector, old.Spec.Selector, specPath.Child("selector"))...)
	}
	return errs
}

func validateStatefulSet(next, old *appsv1.StatefulSet) field.ErrorList {
	template := next.Spec.Template.DeepCopy()
	for _, claim := range next.Spec.VolumeClaimTemplates { // each pod has a volume with the name of the claim
		template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: claim.Name})
	}
	errs := append(validateTemplate(next.Spec.Selector, template), validateReplicas(next.Spec.Replicas)...)
	if old == nil {
		return errs
	}
	fixed := func(s appsv1.StatefulSetSpec) appsv1.StatefulSetSpec {
		s.Replicas, s.Template, s.UpdateStrategy = nil, corev1.PodTemplateSpec{}, appsv1.StatefulSetUpdateStrategy{}
		s.PersistentVolumeClaimRetentionPolicy, s.MinReadySeconds, s.Ordinals = nil, 0, nil
		s.RevisionHistoryLimit = nil
		return s
	}
	if !reflect.DeepEqual(fixed(next.Spec), fixed(old.Spec)) {
		errs = append(errs, field.Forbidden(specPath, "updates to statefulset spec for fields other than 'replicas', "+
			"'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "+
			"'minReadySeconds' are forbidden"))
	}
	return errs
}

func validateJob(next, old *batchv1.Job) field.ErrorList {
	at := specPath.Child("template", "spec")
	errs := validatePodSpec(&next.Spec.Template.Spec, at)
	switch p := next.Spec.Template.Spec.RestartPolicy; p {
	case corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever:
	case corev1.RestartPolicyAlways:
		errs = append(errs, field.Required(at.Child("restartPolicy"), "valid values: \"OnFailure\", \"Never\""))
	}
	for name, n := range map[string]*int32{
		"parallelism": next.Spec.Parallelism, "completions": next.Spec.Completions, "backoffLimit": next.Spec.BackoffLimit,
	} {
		if n != nil {
			errs = append(errs, validation.ValidateNonnegativeField(int64(*n), specPath.Child(name))...)
		}
	}
	indexed := next.Spec.CompletionMode != nil && *next.Spec.CompletionMode == batchv1.IndexedCompletion
	if indexed && next.Spec.Completions == nil {
		errs = append(errs, field.Required(specPath.Child("completions"), "when completion mode is Indexed"))
	}
	if old == nil {
		return errs
	}
	switch at := specPath.Child("completions"); {
	case !indexed:
		errs = append(errs, immutable(next.Spec.Completions, old.Spec.Completions, at)...)
	case next.Spec.Completions == nil || reflect.DeepEqual(next.Spec.Completions, old.Spec.Completions):
	case *next.Spec.Completions != *next.Spec.Parallelism:
		errs = append(errs, field.Invalid(at, *next.Spec.Completions, "can only be modified in tandem with spec.parallelism"))
	}
	errs = append(errs, immutable(next.Spec.Selector, old.Spec.Selector, specPath.Child("selector"))...)
	errs = append(errs, immutable(next.Spec.CompletionMode, old.Spec.CompletionMode, specPath.Child("completionMode"))...)
	if !mayMovePods(old) {
		return append(errs, immutable(next.Spec.Template, old.Spec.Template, specPath.Child("template"))...)
	}
	fixed := withPlacement(old.Spec.Template.Spec, next.Spec.Template.Spec)
	return append(errs, immutable(next.Spec.Template.Spec, fixed, specPath.Child("template", "spec"))...)
}

// mayMovePods reports whether a Job is suspended and has no pods. Then the labels, resources and placement of its pods
// may change.
func mayMovePods(old *batchv1.Job) bool {
	isTold := slices.ContainsFunc(old.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	})
	suspended := old.Spec.Suspend != nil && *old.Spec.Suspend
	return suspended && old.Status.Active == 0 && (isTold || old.Status.StartTime == nil)
}

// withPlacement returns the spec of a pod with the placement and the resources of another one.
func withPlacement(spec, from corev1.PodSpec) corev1.PodSpec {
	s := *spec.DeepCopy()
	s.NodeSelector, s.Tolerations, s.SchedulingGates = from.NodeSelector, from.Tolerations, from.SchedulingGates
	if from.Affinity != nil || s.Affinity != nil {
		if s.Affinity == nil {
			s.Affinity = &corev1.Affinity{}
		}
		s.Affinity.NodeAffinity = nil
		if from.Affinity != nil {
			s.Affinity.NodeAffinity = from.Affinity.NodeAffinity
		} else if *s.Affinity == (corev1.Affinity{}) {
			s.Affinity = nil
		}
	}
	for i := range s.Containers[:min(len(s.Containers), len(from.Containers))] {
		s.Containers[i].Resources = from.Containers[i].Resources
	}
	for i := range s.InitContainers[:min(len(s.InitContainers), len(from.InitContainers))] {
		s.InitContainers[i].Resources = from.InitContainers[i].Resources
	}
	return s
}

func validateClaim(next, old *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	if len(next.Spec.AccessModes) == 0 {
		errs = append(errs, field.Required(specPath.Child("accessModes"), "at least 1 access mode is required"))
	}
	if _, ok := next.Spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(specPath.Child("resources").Key("storage"), ""))
	}
	if old == nil {
		return errs
	}
	fixed := next.Spec.DeepCopy()
	fixed.Resources = old.Spec.Resources
	if old.Spec.VolumeName == "" {
		fixed.VolumeName = ""
		if old.Spec.StorageClassName == nil { // the volume controller sets the default class later
			fixed.StorageClassName = nil
		}
	}
	if !reflect.DeepEqual(*fixed, old.Spec) {
		errs = append(errs, field.Forbidden(specPath, "spec is immutable after creation except resources.requests"))
	}
	return errs
}

func validateIngress(next, _ *networkingv1.Ingress) field.ErrorList {
	var errs field.ErrorList
	if len(next.Spec.Rules) == 0 && next.Spec.DefaultBackend == nil {
		errs = append(errs, field.Invalid(specPath, next.Spec.Rules, "either `defaultBackend` or `rules` must be specified"))
	}
	for i, rule := range next.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		paths := specPath.Child("rules").Index(i).Child("http", "paths")
		if len(rule.HTTP.Paths) == 0 {
			errs = append(errs, field.Required(paths, ""))
		}
		for j, p := range rule.HTTP.Paths {
			if p.PathType == nil {
				errs = append(errs, field.Required(paths.Index(j).Child("pathType"), "pathType must be specified"))
			}
		}
	}
	return errs
}

func validateBudget(next, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	if next.Spec.MinAvailable != nil && next.Spec.MaxUnavailable != nil {
		return field.ErrorList{field.Invalid(specPath, next.Spec, "minAvailable and maxUnavailable cannot be both set")}
	}
	return nil
}

// validateRole checks a Role or ClusterRole, which have the same rules.
func validateRole(next, _ *rbacv1.ClusterRole) field.ErrorList {
	var errs field.ErrorList
	for i, rule := range next.Rules {
		at := field.NewPath("rules").Index(i)
		if len(rule.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(rule.NonResourceURLs) > 0 {
			continue
		}
		if len(rule.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(rule.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

// validateBinding checks a RoleBinding or ClusterRoleBinding, which have the same fields.
func validateBinding(next, old *rbacv1.RoleBinding) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if next.RoleRef.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	if kinds := []string{"ClusterRole", "Role"}; !slices.Contains(kinds, next.RoleRef.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), next.RoleRef.Kind, kinds))
	}
	for i, s := range next.Subjects {
		if s.Name == "" {
			errs = append(errs, field.Required(field.NewPath("subjects").Index(i).Child("name"), ""))
		}
		if s.Kind == rbacv1.ServiceAccountKind && s.Namespace == "" && next.Namespace == "" {
			errs = append(errs, field.Required(field.NewPath("subjects").Index(i).Child("namespace"), ""))
		}
	}
	if old != nil && next.RoleRef != old.RoleRef {
		errs = append(errs, field.Invalid(at, next.RoleRef, "cannot change roleRef"))
	}
	return errs
}
