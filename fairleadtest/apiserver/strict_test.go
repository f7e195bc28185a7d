package apiserver_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fairlead-io/fairlead/fairleadtest/apiserver"
)

// TestStrictRequiresNamespaces: four are there from the start, and others must be created first.
func TestStrictRequiresNamespaces(t *testing.T) {
	t.Parallel()
	c := typed(t, start(t, apiserver.Options{Strict: true}))
	list, err := c.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	if diff := cmp.Diff([]string{"default", "kube-node-lease", "kube-public", "kube-system"}, names); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	_, err = c.CoreV1().ConfigMaps("a").Create(t.Context(), configMap("x", "1"), metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a ConfigMap in a missing namespace: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().ConfigMaps("a").Create(t.Context(), configMap("x", "1"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestStrictSetsDefaults: an object without optional fields gets them, and a second write of it changes nothing.
func TestStrictSetsDefaults(t *testing.T) {
	t.Parallel()
	s := start(t, apiserver.Options{Strict: true})
	c := typed(t, s).AppsV1().Deployments("default")
	minimal := func() *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "d"},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
				},
			},
		}
	}
	created, err := c.Create(t.Context(), minimal(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if created.Spec.Replicas == nil || *created.Spec.Replicas != 1 ||
		created.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways {
		t.Errorf("defaults are missing: %+v", created.Spec)
	}
	updated, err := c.Update(t.Context(), minimal(), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if updated.ResourceVersion != created.ResourceVersion {
		t.Error("an update with the same content is a new revision")
	}
	wrong := minimal()
	wrong.Name, wrong.Spec.Selector.MatchLabels["a"] = "e", "c"
	if _, err := c.Create(t.Context(), wrong, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a selector that does not match: %v", err)
	}
}

// TestStrictAllocatesForServices: each service gets an address of its own and keeps it.
func TestStrictAllocatesForServices(t *testing.T) {
	t.Parallel()
	c := typed(t, start(t, apiserver.Options{Strict: true})).CoreV1().Services("default")
	service := func(name string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
		}
	}
	a, err := c.Create(t.Context(), service("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Create(t.Context(), service("b"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Spec.ClusterIP == b.Spec.ClusterIP || a.Spec.Ports[0].NodePort == b.Spec.Ports[0].NodePort {
		t.Errorf("two services share %+v and %+v", a.Spec, b.Spec)
	}
	again, err := c.Update(t.Context(), service("a"), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.Spec, again.Spec); diff != "" {
		t.Errorf("an update changes what was allocated (-before +after):\n%s", diff)
	}
}

// TestStrictBindsAccountsOfTheNamespace: a RoleBinding's ServiceAccount needs no namespace, that of a
// ClusterRoleBinding does.
func TestStrictBindsAccountsOfTheNamespace(t *testing.T) {
	t.Parallel()
	c := typed(t, start(t, apiserver.Options{Strict: true})).RbacV1()
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "x"}}
	ref := rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}
	meta := metav1.ObjectMeta{Name: "b"}
	_, err := c.RoleBindings("default").Create(t.Context(),
		&rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("a RoleBinding was refused: %v", err)
	}
	_, err = c.ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: ref}, metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a ClusterRoleBinding was not refused: %v", err)
	}
}

// TestStrictMountsClaims: a container of a StatefulSet can mount a volume that its claim templates make.
func TestStrictMountsClaims(t *testing.T) {
	t.Parallel()
	c := typed(t, start(t, apiserver.Options{Strict: true})).AppsV1().StatefulSets("default")
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: appsv1.StatefulSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "i", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}}},
		},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: size},
			},
		}},
	}}
	created, err := c.Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if volumes := created.Spec.Template.Spec.Volumes; len(volumes) > 0 {
		t.Errorf("the stored template has volumes: %v", volumes)
	}
}

// TestStrictChangesJobs: the completions of an indexed Job follow its parallelism, and a suspended Job may be scheduled
// elsewhere. Other changes are refused.
func TestStrictChangesJobs(t *testing.T) {
	t.Parallel()
	c := typed(t, start(t, apiserver.Options{Strict: true})).BatchV1().Jobs("default")
	create := func(name string, change func(*batchv1.JobSpec)) {
		job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
			Completions: new(int32(2)), Parallelism: new(int32(2)),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
			}},
		}}
		change(&job.Spec)
		if _, err := c.Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("indexed", func(s *batchv1.JobSpec) { s.CompletionMode = new(batchv1.IndexedCompletion) })
	create("plain", func(*batchv1.JobSpec) {})
	create("suspended", func(s *batchv1.JobSpec) { s.Suspend = new(true) })
	for _, tt := range []struct {
		job, patch string
		ok         bool
	}{
		{"indexed", `{"spec":{"completions":3,"parallelism":3}}`, true},
		{"indexed", `{"spec":{"completions":4}}`, false},
		{"indexed", `{"spec":{"completions":null}}`, false},
		{"indexed", `{"spec":{"completionMode":"NonIndexed"}}`, false},
		{"plain", `{"spec":{"completions":3,"parallelism":3}}`, false},
		{"plain", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, false},
		{"suspended", `{"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"a":"b"}}}}}`, true},
		{"suspended", `{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{}}}}}}`, true},
		{"suspended", `{"spec":{"template":{"spec":{"affinity":{"podAffinity":{}}}}}}`, false},
		{"suspended", `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`, false},
	} {
		_, err := c.Patch(t.Context(), tt.job, types.MergePatchType, []byte(tt.patch), metav1.PatchOptions{})
		if tt.ok && err != nil || !tt.ok && !apierrors.IsInvalid(err) {
			t.Errorf("the patch %s of %s leads to the error %v", tt.patch, tt.job, err)
		}
	}
}
