package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/fairlead-io/fairlead/cluster"
	"github.com/fairlead-io/fairlead/cluster/clustertest"
	"github.com/fairlead-io/fairlead/cluster/kubelet"
)

// world is a namespace of a control plane with the controller manager and the stand-in for nodes.
type world struct {
	kubernetes.Interface
	t         *testing.T
	namespace string
}

// TestWorkloads runs every kind of workload as on a cluster with nodes.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, cluster.Options{ControllerManager: true, Kubelet: true})
	for name, test := range map[string]func(w *world){
		"NamespaceIsEmptied": testNamespace, "DependentsAreCollected": testOwned, "Deployment": testDeployment,
		"Job": testJob, "JobFails": testFailingJob, "StatefulSet": testStatefulSet, "DaemonSet": testDaemonSet,
		"Claim": testClaim, "PodWaitsForConfigMap": testMissing, "PodRestarts": testCrash, "Account": testAccount,
	} {
		t.Run(name, func(t *testing.T) {
			test(&world{client(t, c.Config()), t, clustertest.Namespace(t, c.Config())})
		})
	}
	t.Run("RestartAndRestore", func(t *testing.T) {
		w := &world{client(t, c.Config()), t, clustertest.Namespace(t, c.Config())}
		testRestart(w, c)
	})
}

func template(annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: annotations},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:v1"}}},
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// eventuallyIs waits until get returns an object that holds accepts.
func eventuallyIs[T any](w *world, what string, get func(ctx context.Context) (T, error), holds func(T) bool) {
	w.t.Helper()
	clustertest.Eventually(w.t, what, func(ctx context.Context) error {
		obj, err := get(ctx)
		if err == nil && !holds(obj) {
			err = fmt.Errorf("the object is %+v", obj)
		}
		return err
	})
}

func eventuallyGone[T any](w *world, what string, get func(ctx context.Context) (T, error)) {
	w.t.Helper()
	clustertest.Eventually(w.t, what, func(ctx context.Context) error {
		obj, err := get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("there is %+v, %w", obj, err)
	})
}

func testNamespace(w *world) {
	_, err := w.CoreV1().ConfigMaps(w.namespace).Create(w.t.Context(), configMap("a"), metav1.CreateOptions{})
	w.must(err)
	w.must(w.CoreV1().Namespaces().Delete(w.t.Context(), w.namespace, metav1.DeleteOptions{}))
	eventuallyGone(w, "the namespace", func(ctx context.Context) (*corev1.Namespace, error) {
		return w.CoreV1().Namespaces().Get(ctx, w.namespace, metav1.GetOptions{})
	})
}

func testOwned(w *world) {
	maps := w.CoreV1().ConfigMaps(w.namespace)
	owner, err := maps.Create(w.t.Context(), configMap("owner"), metav1.CreateOptions{})
	w.must(err)
	owned := configMap("owned")
	owned.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}
	_, err = maps.Create(w.t.Context(), owned, metav1.CreateOptions{})
	w.must(err)
	w.must(maps.Delete(w.t.Context(), "owner", metav1.DeleteOptions{}))
	eventuallyGone(w, "the owned object", func(ctx context.Context) (*corev1.ConfigMap, error) {
		return maps.Get(ctx, "owned", metav1.GetOptions{})
	})
}

func testDeployment(w *world) {
	all := w.AppsV1().Deployments(w.namespace)
	_, err := all.Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector(), Template: template(nil)},
	}, metav1.CreateOptions{})
	w.must(err)
	get := func(ctx context.Context) (*appsv1.Deployment, error) { return all.Get(ctx, "web", metav1.GetOptions{}) }
	eventuallyIs(w, "the Deployment", get, func(d *appsv1.Deployment) bool {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentAvailable && c.Status == corev1.ConditionTrue {
				return d.Status.AvailableReplicas == 3
			}
		}
		return false
	})
	pods := w.CoreV1().Pods(w.namespace)
	list, err := pods.List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	w.must(pods.Delete(w.t.Context(), list.Items[0].Name, metav1.DeleteOptions{}))
	eventuallyGone(w, "the deleted pod", func(ctx context.Context) (*corev1.Pod, error) {
		return pods.Get(ctx, list.Items[0].Name, metav1.GetOptions{})
	})
	w.must(all.Delete(w.t.Context(), "web", metav1.DeleteOptions{}))
	eventuallyIs(w, "the pods", func(ctx context.Context) (*corev1.PodList, error) {
		return pods.List(ctx, metav1.ListOptions{})
	}, func(l *corev1.PodList) bool { return len(l.Items) == 0 })
}

func (w *world) job(name string, annotations map[string]string) func(ctx context.Context) (*batchv1.Job, error) {
	w.t.Helper()
	spec := template(annotations)
	spec.Spec.RestartPolicy = corev1.RestartPolicyNever
	jobs := w.BatchV1().Jobs(w.namespace)
	_, err := jobs.Create(w.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.JobSpec{Template: spec, BackoffLimit: new(int32(0)), Completions: new(int32(2))},
	}, metav1.CreateOptions{})
	w.must(err)
	return func(ctx context.Context) (*batchv1.Job, error) { return jobs.Get(ctx, name, metav1.GetOptions{}) }
}

func hasCondition(kind batchv1.JobConditionType) func(j *batchv1.Job) bool {
	return func(j *batchv1.Job) bool {
		for _, c := range j.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionTrue {
				return true
			}
		}
		return false
	}
}

func testJob(w *world) {
	eventuallyIs(w, "the Job", w.job("report", nil), hasCondition(batchv1.JobComplete))
}

func testFailingJob(w *world) {
	get := w.job("report", map[string]string{kubelet.ExitCode: "1", kubelet.RunFor: "100ms"})
	eventuallyIs(w, "the Job", get, hasCondition(batchv1.JobFailed))
}

func testStatefulSet(w *world) {
	all := w.AppsV1().StatefulSets(w.namespace)
	_, err := all.Create(w.t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: selector(), Template: template(nil), ServiceName: "db",
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec(),
			}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	get := func(ctx context.Context) (*appsv1.StatefulSet, error) { return all.Get(ctx, "db", metav1.GetOptions{}) }
	rolled := func(s *appsv1.StatefulSet) bool {
		return s.Status.ObservedGeneration == s.Generation && s.Status.UpdatedReplicas == 2 && s.Status.ReadyReplicas == 2 &&
			s.Status.CurrentRevision == s.Status.UpdateRevision
	}
	eventuallyIs(w, "the StatefulSet", get, rolled)
	_, err = all.Patch(w.t.Context(), "db", "application/json-patch+json",
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:v2"}]`), metav1.PatchOptions{})
	w.must(err)
	eventuallyIs(w, "the new StatefulSet", get, rolled)
	pod, err := w.CoreV1().Pods(w.namespace).Get(w.t.Context(), "db-1", metav1.GetOptions{})
	w.must(err)
	if got := pod.Status.ContainerStatuses[0].Image; got != "web:v2" {
		w.t.Errorf("the image of db-1 is %s", got)
	}
}

func testDaemonSet(w *world) {
	all := w.AppsV1().DaemonSets(w.namespace)
	_, err := all.Create(w.t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent"},
		Spec:       appsv1.DaemonSetSpec{Selector: selector(), Template: template(nil)},
	}, metav1.CreateOptions{})
	w.must(err)
	eventuallyIs(w, "the DaemonSet", func(ctx context.Context) (*appsv1.DaemonSet, error) {
		return all.Get(ctx, "agent", metav1.GetOptions{})
	}, func(d *appsv1.DaemonSet) bool { return d.Status.NumberReady == 1 })
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

func testClaim(w *world) {
	all := w.CoreV1().PersistentVolumeClaims(w.namespace)
	_, err := all.Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec(),
	}, metav1.CreateOptions{})
	w.must(err)
	get := func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
		return all.Get(ctx, "data", metav1.GetOptions{})
	}
	eventuallyIs(w, "the claim", get, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Phase == corev1.ClaimBound
	})
	claim, err := get(w.t.Context())
	w.must(err)
	volume := func(ctx context.Context) (*corev1.PersistentVolume, error) {
		return w.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	}
	eventuallyIs(w, "the volume", volume, func(v *corev1.PersistentVolume) bool {
		return v.Status.Phase == corev1.VolumeBound
	})
	w.must(all.Delete(w.t.Context(), "data", metav1.DeleteOptions{}))
	eventuallyGone(w, "the claim", get)
	eventuallyGone(w, "the volume", volume)
}

func (w *world) pod(annotations map[string]string,
	change func(p *corev1.Pod),
) func(context.Context) (*corev1.Pod, error) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: annotations}, Spec: template(nil).Spec,
	}
	if change != nil {
		change(pod)
	}
	pods := w.CoreV1().Pods(w.namespace)
	clustertest.Eventually(w.t, "the pod", func(ctx context.Context) error { // its account takes a moment
		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	return func(ctx context.Context) (*corev1.Pod, error) { return pods.Get(ctx, "web", metav1.GetOptions{}) }
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.Status.Phase == corev1.PodRunning
		}
	}
	return false
}

func testMissing(w *world) {
	get := w.pod(nil, func(p *corev1.Pod) {
		p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{
			ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
		}}
	})
	eventuallyIs(w, "the pod", get, func(p *corev1.Pod) bool {
		return p.Spec.NodeName == kubelet.NodeName && p.Status.Phase == corev1.PodPending &&
			len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Message == `ConfigMap "config" not found`
	})
	_, err := w.CoreV1().ConfigMaps(w.namespace).Create(w.t.Context(), configMap("config"), metav1.CreateOptions{})
	w.must(err)
	eventuallyIs(w, "the pod", get, isReady)
}

func testCrash(w *world) {
	get := w.pod(map[string]string{kubelet.ExitCode: "2"}, nil)
	eventuallyIs(w, "the pod", get, func(p *corev1.Pod) bool {
		return !isReady(p) && len(p.Status.ContainerStatuses) == 1 &&
			p.Status.ContainerStatuses[0].State.Waiting != nil &&
			p.Status.ContainerStatuses[0].State.Waiting.Reason == "CrashLoopBackOff" &&
			p.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode == 2
	})
}

// A pod gets a token of its account, as in a cluster.
func testAccount(w *world) {
	get := w.pod(nil, nil)
	eventuallyIs(w, "the pod", get, func(p *corev1.Pod) bool {
		return p.Spec.ServiceAccountName == "default" && len(p.Spec.Volumes) == 1 && isReady(p)
	})
}

// testRestart breaks the connections of the controllers and rolls history back.
func testRestart(w *world, c *cluster.Cluster) {
	w.must(c.RestartAPIServer(w.t.Context()))
	get := w.pod(nil, nil)
	eventuallyIs(w, "the pod", get, isReady)
	snapshot := filepath.Join(w.t.TempDir(), "snapshot")
	w.must(c.Snapshot(w.t.Context(), snapshot))
	pods := w.CoreV1().Pods(w.namespace)
	clustertest.Eventually(w.t, "the delete", func(ctx context.Context) error { // kube-apiserver reconnects to etcd
		return pods.Delete(ctx, "web", metav1.DeleteOptions{})
	})
	eventuallyGone(w, "the pod", get)
	w.must(c.Restore(w.t.Context(), snapshot))
	testJob(w)
	w.must(pods.Delete(w.t.Context(), "web", metav1.DeleteOptions{}))
	eventuallyGone(w, "the restored pod", get)
}
