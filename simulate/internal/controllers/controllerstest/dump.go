package controllerstest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// line is what two clusters must agree on for an object.
type line struct {
	Kind, Name          string
	Labels, Annotations map[string]string `json:",omitempty"`
	Finalizers, Owners  []string          `json:",omitempty"`
	IsDeleted           bool              `json:",omitempty"`
	Spec, Status        any               `json:",omitempty"`
}

// unequal are annotations that only one of two clusters sets, or with a time.
var unequal = []string{
	"endpoints.kubernetes.io/last-change-trigger-time",
	"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner",
	"pv.kubernetes.io/bound-by-controller",     // of the binder, which leaves the claim to the provisioner here
	"deprecated.daemonset.template.generation", // of the API server
}

// dump collects lines, and the words that differ between two clusters.
type dump struct {
	lines []line
	masks []string // pairs for a strings.Replacer
}

func (d *dump) mask(word, mask string) {
	if word != "" && word != mask {
		d.masks = append(d.masks, word, mask)
	}
}

func (d *dump) add(kind string, obj metav1.Object, spec, status any) {
	l := line{
		Kind: kind, Name: obj.GetName(), Labels: maps.Clone(obj.GetLabels()), Annotations: maps.Clone(obj.GetAnnotations()),
		Finalizers: obj.GetFinalizers(), IsDeleted: obj.GetDeletionTimestamp() != nil, Spec: spec, Status: status,
	}
	for _, ref := range obj.GetOwnerReferences() {
		l.Owners = append(l.Owners, fmt.Sprintf("%s %s %s controller=%v blocks=%v", ref.APIVersion, ref.Kind, ref.Name,
			ref.Controller != nil && *ref.Controller, ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion))
	}
	for _, name := range unequal {
		delete(l.Annotations, name)
	}
	delete(l.Labels, "pod-template-generation")
	if kind == "Job" { // the API server copies them from the template
		l.Labels = nil
	}
	d.lines = append(d.lines, l)
}

// Dump returns the state of a namespace as text, one object a line, without what differs by chance between two
// clusters: times, uids, random and hashed names.
func Dump(ctx context.Context, c kubernetes.Interface, namespace string) (string, error) {
	d, all := &dump{}, metav1.ListOptions{}
	d.mask(namespace, "NAMESPACE")
	sets, err := c.AppsV1().ReplicaSets(namespace).List(ctx, all)
	if err != nil {
		return "", err
	}
	for _, rs := range sets.Items {
		hash := rs.Labels["pod-template-hash"]
		rev := cmp.Or(rs.Annotations["deployment.kubernetes.io/revision"], "none")
		d.mask(rs.Name, strings.TrimSuffix(rs.Name, hash)+"HASH"+rev)
		d.mask(hash, "HASH"+rev)
		s := rs.Status.DeepCopy()
		s.ObservedGeneration -= rs.Generation // the number of its changes is free
		for i := range s.Conditions {
			s.Conditions[i].LastTransitionTime, s.Conditions[i].Message = metav1.Time{}, ""
		}
		d.add("ReplicaSet", &rs, rs.Spec.Replicas, s)
	}
	list, err := c.AppsV1().Deployments(namespace).List(ctx, all)
	if err != nil {
		return "", err
	}
	for _, x := range list.Items {
		s := x.Status.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastTransitionTime, s.Conditions[i].LastUpdateTime = metav1.Time{}, metav1.Time{}
		}
		slices.SortFunc(s.Conditions, func(a, b appsv1.DeploymentCondition) int { return cmp.Compare(a.Type, b.Type) })
		d.add("Deployment", &x, x.Spec.Replicas, s)
	}
	stateful, err := c.AppsV1().StatefulSets(namespace).List(ctx, all)
	if err != nil {
		return "", err
	}
	for _, x := range stateful.Items {
		for _, rev := range []string{x.Status.CurrentRevision, x.Status.UpdateRevision} {
			d.mask(rev, x.Name+"-REVISION"+map[bool]string{true: "", false: "-OLD"}[rev == x.Status.UpdateRevision])
		}
		d.add("StatefulSet", &x, x.Spec.Replicas, x.Status)
	}
	for _, add := range []func(context.Context, kubernetes.Interface, string, *dump) error{
		dumpPods, dumpJobs, dumpDaemonSets, dumpClaims, dumpMaps, dumpSlices, dumpNamespace,
	} {
		if err := add(ctx, c, namespace, d); err != nil {
			return "", err
		}
	}
	return d.text()
}

// text returns the masked lines in order. Longer words are masked first.
func (d *dump) text() (string, error) {
	pairs := slices.Collect(slices.Chunk(d.masks, 2))
	slices.SortStableFunc(pairs, func(a, b []string) int { return cmp.Compare(len(b[0]), len(a[0])) })
	replacer := strings.NewReplacer(slices.Concat(pairs...)...)
	lines := make([]string, 0, len(d.lines))
	for _, l := range d.lines {
		b, err := json.Marshal(l)
		if err != nil {
			return "", err
		}
		lines = append(lines, replacer.Replace(replacer.Replace(string(b)))) // a masked pod name has a hash
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

func dumpPods(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range list.Items {
		if p.GenerateName != "" && p.Labels["statefulset.kubernetes.io/pod-name"] == "" {
			d.mask(p.Name, p.GenerateName+"RANDOM")
		}
		d.mask(string(p.UID), "UID")
		d.mask(p.Status.PodIP, "IP")
		var spec struct {
			Node, Hostname, Subdomain string
			Images, Claims            []string
		}
		spec.Node, spec.Hostname, spec.Subdomain = p.Spec.NodeName, p.Spec.Hostname, p.Spec.Subdomain
		for _, c := range p.Spec.Containers {
			spec.Images = append(spec.Images, c.Image)
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				spec.Claims = append(spec.Claims, v.Name+"="+v.PersistentVolumeClaim.ClaimName)
			}
		}
		var status struct {
			Phase      corev1.PodPhase
			Conditions []string
		}
		status.Phase = p.Status.Phase
		for _, c := range p.Status.Conditions {
			status.Conditions = append(status.Conditions, fmt.Sprint(c.Type, c.Status, c.Reason))
		}
		slices.Sort(status.Conditions)
		d.add("Pod", &p, spec, status)
	}
	return nil
}

func dumpJobs(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, j := range list.Items {
		d.mask(string(j.UID), "UID")
		s := j.Status.DeepCopy()
		hasStart, hasEnd := s.StartTime != nil, s.CompletionTime != nil
		s.StartTime, s.CompletionTime = nil, nil
		for i := range s.Conditions {
			s.Conditions[i].LastTransitionTime, s.Conditions[i].LastProbeTime = metav1.Time{}, metav1.Time{}
		}
		d.add("Job", &j, fmt.Sprintf("started=%v ended=%v", hasStart, hasEnd), s)
	}
	return nil
}

func dumpDaemonSets(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, x := range list.Items {
		pods, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{
			LabelSelector: metav1.FormatLabelSelector(x.Spec.Selector),
		})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			d.mask(p.Labels["controller-revision-hash"], "HASH")
		}
		d.add("DaemonSet", &x, nil, x.Status)
	}
	return nil
}

func dumpClaims(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, x := range list.Items {
		d.mask(string(x.UID), "UID")
		d.add("Claim", &x, []any{x.Spec.VolumeName, x.Spec.StorageClassName}, x.Status)
	}
	return nil
}

func dumpMaps(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, x := range list.Items {
		d.add("ConfigMap", &x, slices.Sorted(maps.Keys(x.Data)), nil)
	}
	accounts, err := c.CoreV1().ServiceAccounts(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, x := range accounts.Items {
		d.add("ServiceAccount", &x, nil, nil)
	}
	return nil
}

func dumpSlices(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, x := range list.Items {
		d.mask(x.Name, x.GenerateName+"RANDOM")
		var spec []string
		for _, e := range x.Endpoints {
			spec = append(spec, fmt.Sprint(*e.Conditions.Ready, *e.Conditions.Serving, *e.Conditions.Terminating,
				e.TargetRef.Kind, e.TargetRef.Name, len(e.Addresses), *e.NodeName))
		}
		for _, p := range x.Ports {
			spec = append(spec, fmt.Sprintf("port %q %d", *p.Name, *p.Port))
		}
		slices.Sort(spec)
		d.add("EndpointSlice", &x, append(spec, string(x.AddressType)), nil)
	}
	return nil
}

func dumpNamespace(ctx context.Context, c kubernetes.Interface, namespace string, d *dump) error {
	list, err := c.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + namespace})
	if err != nil {
		return err
	}
	for _, x := range list.Items {
		s := x.Status.DeepCopy()
		for i := range s.Conditions {
			s.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		d.add("Namespace", &x, x.Spec.Finalizers, s)
	}
	return nil
}
