package apiserver

import (
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// setDefaults sets the defaults of a built-in kind.
func setDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Pod:
		defaultPod(o)
	case *corev1.Service:
		defaultService(o)
	case *corev1.PersistentVolumeClaim:
		defaultClaim(&o.Spec)
		orDefault(&o.Status.Phase, corev1.ClaimPending)
	case *corev1.PersistentVolume:
		orDefault(&o.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
		orNew(&o.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		orDefault(&o.Status.Phase, corev1.VolumePending)
	case *appsv1.Deployment:
		defaultDeployment(&o.Spec)
	case *appsv1.ReplicaSet:
		orNew(&o.Spec.Replicas, 1)
		defaultPodSpec(&o.Spec.Template.Spec)
	case *appsv1.StatefulSet:
		defaultStatefulSet(&o.Spec)
	case *appsv1.DaemonSet:
		defaultDaemonSet(&o.Spec)
	case *batchv1.Job:
		if len(o.Labels) == 0 {
			o.Labels = o.Spec.Template.Labels
		}
		defaultJob(&o.Spec)
	case *batchv1.CronJob:
		orDefault(&o.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
		orNew(&o.Spec.Suspend, false)
		orNew(&o.Spec.SuccessfulJobsHistoryLimit, 3)
		orNew(&o.Spec.FailedJobsHistoryLimit, 1)
		defaultPodSpec(&o.Spec.JobTemplate.Spec.Template.Spec)
	case *rbacv1.RoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		defaultBinding(&o.RoleRef, o.Subjects)
	case *storagev1.StorageClass:
		orNew(&o.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
		orNew(&o.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	case *schedulingv1.PriorityClass:
		orNew(&o.PreemptionPolicy, corev1.PreemptLowerPriority)
	case *discoveryv1.EndpointSlice:
		for i := range o.Ports {
			orNew(&o.Ports[i].Name, "")
			orNew(&o.Ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
}

// orDefault sets a field that is empty.
func orDefault[T comparable](at *T, value T) {
	var empty T
	if *at == empty {
		*at = value
	}
}

// orNew sets a field that is nil.
func orNew[T any](at **T, value T) {
	if *at == nil {
		*at = &value
	}
}

func defaultPod(p *corev1.Pod) {
	defaultPodSpec(&p.Spec)
	if s := p.Spec.TerminationGracePeriodSeconds; *s < 0 {
		*s = 1
	}
	for _, containers := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			defaultRequests(&containers[i].Resources)
			for j := range containers[i].Ports {
				if port := &containers[i].Ports[j]; p.Spec.HostNetwork {
					orDefault(&port.HostPort, port.ContainerPort)
				}
			}
		}
	}
	orNew(&p.Spec.EnableServiceLinks, true)
}

// admitPod sets what the admission plugins of a real server set. No manager owns it.
func admitPod(p *corev1.PodSpec) {
	if p.PriorityClassName == "" {
		orNew(&p.Priority, 0)
		orNew(&p.PreemptionPolicy, corev1.PreemptLowerPriority)
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		defaultToleration(p, key)
	}
}

// defaultRequests makes limits without a request a request.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		if _, requested := r.Requests[name]; !requested {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultToleration keeps a pod on a broken node for five minutes.
func defaultToleration(p *corev1.PodSpec, key string) {
	for _, t := range p.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return
		}
	}
	seconds := int64(300)
	p.Tolerations = append(p.Tolerations, corev1.Toleration{
		Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds,
	})
}

func defaultPodSpec(p *corev1.PodSpec) {
	orDefault(&p.ServiceAccountName, p.DeprecatedServiceAccount)
	p.DeprecatedServiceAccount = p.ServiceAccountName
	orDefault(&p.DNSPolicy, corev1.DNSClusterFirst)
	orDefault(&p.RestartPolicy, corev1.RestartPolicyAlways)
	orDefault(&p.SchedulerName, corev1.DefaultSchedulerName)
	orNew(&p.SecurityContext, corev1.PodSecurityContext{})
	orNew(&p.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	for i := range p.InitContainers {
		defaultContainer(&p.InitContainers[i])
	}
	for i := range p.Containers {
		defaultContainer(&p.Containers[i])
	}
	for i := range p.Volumes {
		defaultVolume(&p.Volumes[i].VolumeSource)
	}
}

func defaultContainer(c *corev1.Container) {
	policy := corev1.PullIfNotPresent
	image, _, digest := strings.Cut(c.Image, "@")
	if tag := image[strings.LastIndexByte(image, '/')+1:]; !digest && (!strings.Contains(tag, ":") ||
		strings.HasSuffix(tag, ":latest")) {
		policy = corev1.PullAlways
	}
	orDefault(&c.ImagePullPolicy, policy)
	orDefault(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			orDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		orDefault(&probe.TimeoutSeconds, 1)
		orDefault(&probe.PeriodSeconds, 10)
		orDefault(&probe.SuccessThreshold, 1)
		orDefault(&probe.FailureThreshold, 3)
		defaultHTTP(probe.HTTPGet)
		if probe.GRPC != nil {
			orNew(&probe.GRPC.Service, "")
		}
	}
	if c.Lifecycle != nil {
		for _, handler := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTP(handler.HTTPGet)
			}
		}
	}
}

func defaultHTTP(a *corev1.HTTPGetAction) {
	if a != nil {
		orDefault(&a.Path, "/")
		orDefault(&a.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	const mode = 0o644
	switch {
	case v.Secret != nil:
		orNew(&v.Secret.DefaultMode, mode)
	case v.ConfigMap != nil:
		orNew(&v.ConfigMap.DefaultMode, mode)
	case v.DownwardAPI != nil:
		orNew(&v.DownwardAPI.DefaultMode, mode)
	case v.HostPath != nil:
		orNew(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Projected != nil:
		orNew(&v.Projected.DefaultMode, mode)
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				orNew(&source.ServiceAccountToken.ExpirationSeconds, 3600)
			}
		}
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		defaultClaim(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
}

func defaultClaim(c *corev1.PersistentVolumeClaimSpec) {
	orNew(&c.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func defaultService(s *corev1.Service) {
	spec := &s.Spec
	orDefault(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	orDefault(&spec.Type, corev1.ServiceTypeClusterIP)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	} else {
		orNew(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		orNew(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		orNew(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		orDefault(&port.Protocol, corev1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	external := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer
	if external || spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		orDefault(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeExternalName {
		orNew(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		orNew(&spec.AllocateLoadBalancerNodePorts, true)
	}
}

func defaultDeployment(d *appsv1.DeploymentSpec) {
	orNew(&d.Replicas, 1)
	orNew(&d.RevisionHistoryLimit, 10)
	orNew(&d.ProgressDeadlineSeconds, 600)
	orDefault(&d.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if d.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		orNew(&d.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		orNew(&d.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		orNew(&d.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	defaultPodSpec(&d.Template.Spec)
}

func defaultStatefulSet(s *appsv1.StatefulSetSpec) {
	orNew(&s.Replicas, 1)
	orNew(&s.RevisionHistoryLimit, 10)
	orDefault(&s.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		orNew(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
	}
	if rolling := s.UpdateStrategy.RollingUpdate; rolling != nil &&
		s.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		orNew(&rolling.Partition, 0)
	}
	orNew(&s.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	orDefault(&s.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	for i := range s.VolumeClaimTemplates {
		claim := &s.VolumeClaimTemplates[i]
		claim.Kind, claim.APIVersion = "PersistentVolumeClaim", "v1"
		defaultClaim(&claim.Spec)
		orDefault(&claim.Status.Phase, corev1.ClaimPending)
	}
	defaultPodSpec(&s.Template.Spec)
}

func defaultDaemonSet(d *appsv1.DaemonSetSpec) {
	orNew(&d.RevisionHistoryLimit, 10)
	orDefault(&d.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
	if d.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		orNew(&d.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		orNew(&d.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		orNew(&d.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaultPodSpec(&d.Template.Spec)
}

func defaultJob(j *batchv1.JobSpec) {
	if j.Completions == nil && j.Parallelism == nil {
		orNew(&j.Completions, 1)
	}
	orNew(&j.Parallelism, 1)
	if j.BackoffLimitPerIndex != nil {
		orNew(&j.BackoffLimit, math.MaxInt32)
	}
	orNew(&j.BackoffLimit, 6)
	orNew(&j.CompletionMode, batchv1.NonIndexedCompletion)
	orNew(&j.Suspend, false)
	orNew(&j.ManualSelector, false)
	if j.PodFailurePolicy != nil {
		orNew(&j.PodReplacementPolicy, batchv1.Failed)
	}
	orNew(&j.PodReplacementPolicy, batchv1.TerminatingOrFailed)
	defaultPodSpec(&j.Template.Spec)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	orDefault(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if kind := subjects[i].Kind; kind == rbacv1.UserKind || kind == rbacv1.GroupKind {
			orDefault(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

// defaultContent sets the defaults of a built-in kind in the content of an object.
func (t *table) defaultContent(content map[string]any) {
	obj, err := t.res.newTyped()
	if err != nil || runtime.DefaultUnstructuredConverter.FromUnstructured(content, obj) != nil {
		return // it is refused elsewhere
	}
	setDefaults(obj)
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return
	}
	for k, v := range out {
		if k != "metadata" && k != "kind" && k != "apiVersion" {
			content[k] = v
		}
	}
}
