package controllerstest

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

// Script is a sequence of steps in a namespace of its own. After each of them, the cluster comes to rest.
type Script struct {
	Name  string
	Steps []func(s *Session)
}

// Session is one run of a script. The first error ends it.
type Session struct {
	kubernetes.Interface
	Ctx       context.Context //nolint:containedctx // a session lives as long as the call that makes it
	Namespace string
	Err       error
}

func (s *Session) check(err error) {
	if s.Err == nil {
		s.Err = err
	}
}

func meta(name string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: owners}
}

func (s *Session) configMap(name string, owners ...metav1.OwnerReference) {
	_, err := s.CoreV1().ConfigMaps(s.Namespace).Create(s.Ctx, &corev1.ConfigMap{ObjectMeta: meta(name, owners...)},
		metav1.CreateOptions{})
	s.check(err)
}

// owner returns a reference to a ConfigMap.
func (s *Session) owner(name string, blocks bool) metav1.OwnerReference {
	cm, err := s.CoreV1().ConfigMaps(s.Namespace).Get(s.Ctx, name, metav1.GetOptions{})
	s.check(err)
	ref := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, BlockOwnerDeletion: &blocks}
	if cm != nil {
		ref.UID = cm.UID
	}
	return ref
}

func (s *Session) deleteMap(name string, policy metav1.DeletionPropagation) {
	opts := metav1.DeleteOptions{}
	if policy != "" {
		opts.PropagationPolicy = &policy
	}
	s.check(s.CoreV1().ConfigMaps(s.Namespace).Delete(s.Ctx, name, opts))
}

func (s *Session) patchMap(name, patch string) {
	_, err := s.CoreV1().ConfigMaps(s.Namespace).Patch(s.Ctx, name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	s.check(err)
}

// owners is a tree: top owns middle, middle owns leaf; two also has top as its second owner.
func owners(blocks bool) func(s *Session) {
	return func(s *Session) {
		s.configMap("top")
		s.configMap("other")
		s.configMap("middle", s.owner("top", blocks))
		s.configMap("leaf", s.owner("middle", blocks))
		s.configMap("two", s.owner("top", blocks), s.owner("other", blocks))
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

func (s *Session) deployment(change func(d *appsv1.Deployment)) {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"team": "a"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: selector(), Template: template("web:v1"),
			RevisionHistoryLimit: new(int32(1)), ProgressDeadlineSeconds: new(int32(600)),
		},
	}
	if change != nil {
		change(d)
	}
	_, err := s.AppsV1().Deployments(s.Namespace).Create(s.Ctx, d, metav1.CreateOptions{})
	s.check(err)
}

func (s *Session) patchDeployment(patch string) {
	_, err := s.AppsV1().Deployments(s.Namespace).Patch(s.Ctx, "web", types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	s.check(err)
}

func image(tag string) string {
	return `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:` + tag + `"}]}}}}`
}

func rollTo(tag string) func(s *Session) { return func(s *Session) { s.patchDeployment(image(tag)) } }

func (s *Session) statefulSet(change func(set *appsv1.StatefulSet)) {
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), Selector: selector(), Template: template("db:v1"), ServiceName: "db",
			PodManagementPolicy: appsv1.OrderedReadyPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: meta("data"), Spec: claimSpec()}},
		},
	}
	if change != nil {
		change(set)
	}
	_, err := s.AppsV1().StatefulSets(s.Namespace).Create(s.Ctx, set, metav1.CreateOptions{})
	s.check(err)
}

func (s *Session) patchStatefulSet(patch string) {
	_, err := s.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, "db", types.StrategicMergePatchType, []byte(patch),
		metav1.PatchOptions{})
	s.check(err)
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

// podWith creates the pod "user", which uses a claim.
func (s *Session) podWith(claim string) {
	pod := &corev1.Pod{ObjectMeta: meta("user"), Spec: template("web:v1").Spec}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	_, err := s.CoreV1().Pods(s.Namespace).Create(s.Ctx, pod, metav1.CreateOptions{})
	s.check(err)
}

func (s *Session) deletePods(names ...string) {
	for _, name := range names {
		s.check(s.CoreV1().Pods(s.Namespace).Delete(s.Ctx, name, metav1.DeleteOptions{}))
	}
}

func (s *Session) job(name string, annotations map[string]string, change func(j *batchv1.Job)) {
	j := &batchv1.Job{
		ObjectMeta: meta(name), Spec: batchv1.JobSpec{Template: template("job:v1"), BackoffLimit: new(int32(1))},
	}
	j.Spec.Template.Annotations, j.Spec.Template.Labels = annotations, nil
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	if change != nil {
		change(j)
	}
	_, err := s.BatchV1().Jobs(s.Namespace).Create(s.Ctx, j, metav1.CreateOptions{})
	s.check(err)
}

func (s *Session) indexedJob(name string, completions, parallelism int32, annotations map[string]string) {
	s.job(name, annotations, func(j *batchv1.Job) {
		j.Spec.CompletionMode = new(batchv1.IndexedCompletion)
		j.Spec.Completions, j.Spec.Parallelism = &completions, &parallelism
	})
}

func (s *Session) patchJob(name, patch string) {
	_, err := s.BatchV1().Jobs(s.Namespace).Patch(s.Ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.check(err)
}

// Scripts are the scripts on which the stand-ins agree with the real controllers.
func Scripts() []Script {
	return []Script{
		{"Background", []func(s *Session){owners(false), func(s *Session) { s.deleteMap("top", "") }}},
		{"Foreground", []func(s *Session){
			owners(true),
			func(s *Session) { s.patchMap("leaf", `{"metadata":{"finalizers":["example.com/hold"]}}`) },
			func(s *Session) { s.deleteMap("top", metav1.DeletePropagationForeground) },
			func(s *Session) { s.patchMap("leaf", `{"metadata":{"finalizers":null}}`) },
		}},
		{"ForegroundUnblocked", []func(s *Session){
			owners(false),
			func(s *Session) { s.deleteMap("top", metav1.DeletePropagationForeground) },
		}},
		{"Orphan", []func(s *Session){
			owners(true), func(s *Session) { s.deleteMap("top", metav1.DeletePropagationOrphan) },
		}},
		{"DanglingOwner", []func(s *Session){func(s *Session) {
			s.configMap("a")
			wrong := s.owner("a", false)
			wrong.UID = "00000000-0000-0000-0000-000000000001"
			s.configMap("wrong-uid", wrong)
			absent := s.owner("a", false)
			absent.Name = "absent"
			s.configMap("wrong-name", absent)
			unknown := s.owner("a", false)
			unknown.APIVersion, unknown.Kind, unknown.UID = "none.example.com/v1", "None", "2"
			s.configMap("unknown-kind", unknown)
			s.configMap("one-of-two", s.owner("a", false), wrong)
		}}},
		{"Namespace", []func(s *Session){
			func(s *Session) { s.configMap("a"); s.deployment(nil) },
			func(s *Session) { s.patchMap("a", `{"metadata":{"finalizers":["example.com/hold"]}}`) },
			func(s *Session) { s.check(s.CoreV1().Namespaces().Delete(s.Ctx, s.Namespace, metav1.DeleteOptions{})) },
			func(s *Session) { s.patchMap("a", `{"metadata":{"finalizers":null}}`) },
		}},
		{"Deployment", []func(s *Session){
			func(s *Session) { s.deployment(nil) },
			rollTo("v2"), rollTo("v3"),
			func(s *Session) { s.patchDeployment(`{"spec":{"replicas":5},"metadata":{"annotations":{"team":"b"}}}`) },
			func(s *Session) { s.patchDeployment(`{"spec":{"replicas":2}}`) },
			rollTo("v2"),
			func(s *Session) { s.patchDeployment(`{"spec":{"paused":true}}`) },
			rollTo("v4"),
			func(s *Session) { s.patchDeployment(`{"spec":{"paused":false}}`) },
			func(s *Session) {
				s.check(s.AppsV1().Deployments(s.Namespace).Delete(s.Ctx, "web", metav1.DeleteOptions{}))
			},
		}},
		{"DeploymentStuck", []func(s *Session){
			func(s *Session) { s.deployment(func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(4)) }) },
			func(s *Session) {
				s.patchDeployment(`{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}},"template":` +
					`{"spec":{"containers":[{"name":"web","envFrom":[{"configMapRef":{"name":"none"}}]}]}}}}`)
			},
			func(s *Session) { s.patchDeployment(`{"spec":{"replicas":8}}`) },
			func(s *Session) { s.configMap("none") },
		}},
		{"DeploymentIsLate", []func(s *Session){
			func(s *Session) {
				s.deployment(func(d *appsv1.Deployment) {
					d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 1, new(int32(3))
				})
			},
			func(s *Session) {
				s.patchDeployment(`{"spec":{"template":` +
					`{"spec":{"containers":[{"name":"web","envFrom":[{"configMapRef":{"name":"none"}}]}]}}}}`)
			},
			rollTo("v2"),
		}},
		{"Recreate", []func(s *Session){
			func(s *Session) {
				s.deployment(func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
			},
			rollTo("v2"),
		}},
		{"Adoption", []func(s *Session){
			func(s *Session) {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"app": "web"}},
					Spec:       template("web:v1").Spec,
				}
				_, err := s.CoreV1().Pods(s.Namespace).Create(s.Ctx, pod, metav1.CreateOptions{})
				s.check(err)
			},
			func(s *Session) {
				_, err := s.AppsV1().ReplicaSets(s.Namespace).Create(s.Ctx, &appsv1.ReplicaSet{
					ObjectMeta: meta("web"), Spec: appsv1.ReplicaSetSpec{
						Replicas: new(int32(2)), Selector: selector(), Template: template("web:v1"),
					},
				}, metav1.CreateOptions{})
				s.check(err)
			},
			func(s *Session) {
				_, err := s.CoreV1().Pods(s.Namespace).Patch(s.Ctx, "mine", types.MergePatchType,
					[]byte(`{"metadata":{"labels":{"app":"other"}}}`), metav1.PatchOptions{})
				s.check(err)
			},
			func(s *Session) {
				orphan := metav1.DeletePropagationOrphan
				s.check(s.AppsV1().ReplicaSets(s.Namespace).Delete(s.Ctx, "web",
					metav1.DeleteOptions{PropagationPolicy: &orphan}))
			},
		}},
		{"StatefulSet", []func(s *Session){
			func(s *Session) { s.statefulSet(nil) },
			func(s *Session) { s.patchStatefulSet(image("v2")) },
			func(s *Session) { s.deletePods("db-1") },
			func(s *Session) { s.patchStatefulSet(`{"spec":{"replicas":1}}`) },
			func(s *Session) {
				s.patchStatefulSet(`{"spec":{"replicas":3,"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
			},
			func(s *Session) { s.patchStatefulSet(image("v3")) },
			func(s *Session) { s.deletePods("db-0", "db-2") },
			func(s *Session) {
				s.check(s.AppsV1().StatefulSets(s.Namespace).Delete(s.Ctx, "db", metav1.DeleteOptions{}))
			},
		}},
		{"StatefulSetRetention", []func(s *Session){
			func(s *Session) {
				s.statefulSet(func(set *appsv1.StatefulSet) {
					policy := appsv1.DeletePersistentVolumeClaimRetentionPolicyType
					set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
						WhenDeleted: policy, WhenScaled: policy,
					}
				})
			},
			func(s *Session) { s.patchStatefulSet(`{"spec":{"replicas":1}}`) },
			func(s *Session) { s.patchStatefulSet(`{"spec":{"replicas":2}}`) },
			func(s *Session) {
				s.patchStatefulSet(`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Retain"}}}`)
			},
			func(s *Session) { s.patchStatefulSet(`{"spec":{"replicas":1}}`) },
			func(s *Session) {
				s.patchStatefulSet(`{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete"}}}`)
			},
			func(s *Session) {
				s.check(s.AppsV1().StatefulSets(s.Namespace).Delete(s.Ctx, "db", metav1.DeleteOptions{}))
			},
		}},
		{"StatefulSetParallel", []func(s *Session){
			func(s *Session) {
				s.statefulSet(func(set *appsv1.StatefulSet) {
					set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
					set.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{
						ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}},
					}}
				})
			},
			func(s *Session) { s.configMap("c") },
			func(s *Session) { s.patchStatefulSet(`{"spec":{"replicas":1}}`) },
		}},
		{"Job", []func(s *Session){
			func(s *Session) {
				s.job("done", nil, func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = new(int32(3)), new(int32(2)) })
				s.job("any", nil, func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(2)) })
				s.job("fails", map[string]string{simnode.ExitCode: "1"}, nil)
				s.job("gone", nil, func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(0)) })
				s.job("late", map[string]string{simnode.RunFor: "1h"}, func(j *batchv1.Job) {
					j.Spec.ActiveDeadlineSeconds = new(int64(1))
				})
				s.job("waits", map[string]string{simnode.RunFor: "1h"}, func(j *batchv1.Job) {
					j.Spec.Suspend = new(true)
				})
				s.job("runs", map[string]string{simnode.RunFor: "1h"}, nil)
			},
			func(s *Session) { s.patchJob("waits", `{"spec":{"suspend":false}}`) },
			func(s *Session) { s.patchJob("waits", `{"spec":{"suspend":true}}`) },
			func(s *Session) {
				for _, name := range []string{"runs", "done"} {
					background := metav1.DeletePropagationBackground
					s.check(s.BatchV1().Jobs(s.Namespace).Delete(s.Ctx, name,
						metav1.DeleteOptions{PropagationPolicy: &background}))
				}
			},
		}},
		{"IndexedJob", []func(s *Session){
			func(s *Session) {
				s.indexedJob("done", 4, 2, nil)
				s.indexedJob("fails", 1, 1, map[string]string{simnode.ExitCode: "1"})
				s.indexedJob("runs", 2, 2, map[string]string{simnode.RunFor: "1h"})
			},
			func(s *Session) { s.patchJob("runs", `{"spec":{"parallelism":3,"completions":3}}`) },
			func(s *Session) { s.patchJob("runs", `{"spec":{"parallelism":1,"completions":1}}`) },
			func(s *Session) { s.patchJob("runs", `{"spec":{"suspend":true}}`) },
		}},
		{"DaemonSet", []func(s *Session){
			func(s *Session) {
				_, err := s.AppsV1().DaemonSets(s.Namespace).Create(s.Ctx, &appsv1.DaemonSet{
					ObjectMeta: meta("agent"), Spec: appsv1.DaemonSetSpec{Selector: selector(), Template: template("web:v1")},
				}, metav1.CreateOptions{})
				s.check(err)
			},
			func(s *Session) {
				_, err := s.AppsV1().DaemonSets(s.Namespace).Patch(s.Ctx, "agent", types.StrategicMergePatchType,
					[]byte(image("v2")), metav1.PatchOptions{})
				s.check(err)
			},
		}},
		{"Endpoints", []func(s *Session){
			func(s *Session) {
				s.deployment(nil)
				_, err := s.CoreV1().Services(s.Namespace).Create(s.Ctx, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "a"}},
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": "web"}, ClusterIP: corev1.ClusterIPNone,
						Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}},
					},
				}, metav1.CreateOptions{})
				s.check(err)
			},
			func(s *Session) { s.patchDeployment(`{"spec":{"replicas":1}}`) },
			func(s *Session) {
				s.check(s.CoreV1().Services(s.Namespace).Delete(s.Ctx, "web", metav1.DeleteOptions{}))
			},
		}},
		{"ClaimWaitsForPod", []func(s *Session){
			func(s *Session) {
				class := "late-" + s.Namespace
				_, err := s.StorageV1().StorageClasses().Create(s.Ctx, &storagev1.StorageClass{
					ObjectMeta: meta(class), Provisioner: simnode.Provisioner,
					VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
				}, metav1.CreateOptions{})
				s.check(err)
				spec := claimSpec()
				spec.StorageClassName = &class
				_, err = s.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.Ctx,
					&corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: spec}, metav1.CreateOptions{})
				s.check(err)
			},
			func(s *Session) { s.podWith("data") },
		}},
		{"Claim", []func(s *Session){
			func(s *Session) {
				_, err := s.CoreV1().PersistentVolumeClaims(s.Namespace).Create(s.Ctx,
					&corev1.PersistentVolumeClaim{ObjectMeta: meta("data"), Spec: claimSpec()}, metav1.CreateOptions{})
				s.check(err)
				s.podWith("data")
			},
			func(s *Session) {
				s.check(s.CoreV1().PersistentVolumeClaims(s.Namespace).Delete(s.Ctx, "data", metav1.DeleteOptions{}))
			},
			func(s *Session) { s.deletePods("user") },
		}},
	}
}
