// Package corpus generates Kubernetes objects with the variety of a real cluster, for benchmarks and tests: pods of
// many workloads, whose siblings differ in identifiers, addresses and times, and custom resources.
//
// The same seed gives the same objects.
package corpus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Pods generates pods of a number of workloads.
type Pods struct {
	rnd       *rand.Rand
	workloads []workload
	names     map[string]bool // names in use: pod names are unique
	version   uint64
}

type workload struct {
	pod   corev1.Pod
	owner types.UID
}

// NewPods returns a generator of pods of that many workloads.
func NewPods(seed uint64, workloads int) *Pods {
	p := &Pods{rnd: rand.New(rand.NewPCG(seed, 1)), names: map[string]bool{}, version: 100_000_000}
	for i := range workloads {
		p.workloads = append(p.workloads, p.workload(i))
	}
	return p
}

// Next returns pod i, of workload i modulo the number of workloads. The fields that the server sets are set.
func (p *Pods) Next(i int) *corev1.Pod {
	w := &p.workloads[i%len(p.workloads)]
	pod := w.pod.DeepCopy()
	p.version += uint64(1 + p.rnd.IntN(9))
	at := metav1.NewTime(time.Unix(1_790_000_000+int64(p.rnd.IntN(5_000_000)), 0).UTC())
	for pod.Name == "" || p.names[pod.Name] {
		pod.Name = pod.GenerateName + p.word(5)
	}
	p.names[pod.Name] = true
	pod.UID, pod.ResourceVersion = p.uid(), fmt.Sprint(p.version)
	pod.CreationTimestamp = at
	node := fmt.Sprintf("ip-10-%d-%d-%d.eu-central-1.compute.internal", p.rnd.IntN(4), p.rnd.IntN(250), p.rnd.IntN(250))
	pod.Spec.NodeName = node
	token := "kube-api-access-" + p.word(5)
	last := len(pod.Spec.Volumes) - 1
	pod.Spec.Volumes[last].Name = token
	ip := fmt.Sprintf("10.%d.%d.%d", 64+p.rnd.IntN(8), p.rnd.IntN(250), p.rnd.IntN(250))
	host := fmt.Sprintf("10.%d.%d.%d", p.rnd.IntN(4), p.rnd.IntN(250), p.rnd.IntN(250))
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, HostIP: host, HostIPs: []corev1.HostIP{{IP: host}}, PodIP: ip,
		PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &at, QOSClass: corev1.PodQOSBurstable,
	}
	for j, t := range []corev1.PodConditionType{
		"PodReadyToStartContainers", corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: t, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(at.Add(time.Duration(j*3+p.rnd.IntN(9)) * time.Second)),
		})
	}
	for j := range pod.Spec.Containers {
		c := &pod.Spec.Containers[j]
		c.VolumeMounts[len(c.VolumeMounts)-1].Name = token
		started := true
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Started: &started,
			RestartCount: int32(p.rnd.IntN(3)), Image: c.Image,
			ImageID:     strings.Split(c.Image, ":")[0] + "@sha256:" + digest(c.Image),
			ContainerID: "containerd://" + p.hex(64),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
				StartedAt: metav1.NewTime(at.Add(time.Duration(p.rnd.IntN(40)) * time.Second)),
			}},
		})
	}
	return pod
}

// JSON returns pod i in the encoding of a watch, with managedFields if managed is set.
func (p *Pods) JSON(i int, managed bool) []byte {
	pod := p.Next(i)
	pod.APIVersion, pod.Kind = "v1", "Pod"
	if managed {
		pod.ManagedFields = []metav1.ManagedFieldsEntry{
			{
				Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &pod.CreationTimestamp,
				FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(managedFields),
			},
			{
				Manager: "kubelet", Operation: "Update", APIVersion: "v1", Time: pod.Status.StartTime, FieldsType: "FieldsV1",
				Subresource: "status", FieldsV1: metav1.NewFieldsV1(managedFields),
			},
		}
	}
	out, err := json.Marshal(pod)
	if err != nil {
		panic(err) // a generated pod always encodes
	}
	return out
}

const managedFields = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"main\"}":{".":{},"f:env":{},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{},"f:name":{},"f:ports":{},"f:resources":{}}},"f:dnsPolicy":{},"f:restartPolicy":{}}}`

var words = strings.Fields(
	"account address agent alert audit auth backup balance batch billing blob booking broker cache card cart catalog " +
		"chat check claim cluster config consent contract coupon crawl credit customer dashboard data delivery device " +
		"discount document driver edge email event export feature feed fleet forecast fraud gateway geo graph history " +
		"image import index inventory invoice job ledger license loader location login loyalty mail media merge message " +
		"meter metric model notify offer order partner payment plan policy portal price product profile promo proxy " +
		"quota queue quote rate refund registry relay render report review reward risk route rule scan schedule " +
		"scoring search session settle ship signal sku status stock stream subscriber support sync tax ticket token " +
		"trace track trade transfer upload user vault vendor video wallet warehouse web worker",
)

func (p *Pods) pick() string { return words[p.rnd.IntN(len(words))] }

func (p *Pods) workload(i int) workload {
	team, app := p.pick(), p.pick()+"-"+p.pick()
	ns := fmt.Sprintf("%s-%s", team, []string{"prod", "stage", "dev"}[p.rnd.IntN(3)])
	hash := p.word(10)
	yes, grace := true, int64(30)
	w := workload{owner: p.uid()}
	m := &w.pod.ObjectMeta
	m.Namespace, m.GenerateName = ns, fmt.Sprintf("%s-%d-%s-", app, i, hash)
	m.Labels = map[string]string{
		"app.kubernetes.io/name": app, "app.kubernetes.io/instance": fmt.Sprintf("%s-%d", app, i),
		"app.kubernetes.io/part-of": team,
		"app.kubernetes.io/version": fmt.Sprintf("%d.%d.%d", p.rnd.IntN(9), p.rnd.IntN(30), p.rnd.IntN(90)),
		"pod-template-hash":         hash, "team": team,
	}
	m.Annotations = map[string]string{
		"prometheus.io/scrape": "true",
		"prometheus.io/port":   fmt.Sprint(8000 + p.rnd.IntN(999)), "checksum/config": p.hex(64),
	}
	m.OwnerReferences = []metav1.OwnerReference{
		{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: strings.TrimSuffix(m.GenerateName, "-"), UID: w.owner,
			Controller: &yes, BlockOwnerDeletion: &yes,
		},
	}
	s := &w.pod.Spec
	for range 1 + p.rnd.IntN(3) {
		name := p.pick() + "-" + p.pick()
		s.Volumes = append(s.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: name + "-" + p.word(6)},
				},
			},
		})
	}
	s.Volumes = append(s.Volumes, corev1.Volume{
		VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &[]int64{3607}[0], Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
		}}},
	})
	for c := range 1 + p.rnd.IntN(2) {
		s.Containers = append(s.Containers, p.container(app, c, s.Volumes))
	}
	s.RestartPolicy, s.DNSPolicy, s.TerminationGracePeriodSeconds = corev1.RestartPolicyAlways, corev1.DNSClusterFirst,
		&grace
	s.ServiceAccountName, s.SchedulerName = app, "default-scheduler"
	s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes}
	s.Tolerations = []corev1.Toleration{
		{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &[]int64{300}[0]},
		{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &[]int64{300}[0]},
	}
	if p.rnd.IntN(2) == 0 {
		s.NodeSelector = map[string]string{"node.kubernetes.io/pool": p.pick()}
	}
	return w
}

func (p *Pods) container(app string, i int, volumes []corev1.Volume) corev1.Container {
	port := 8000 + p.rnd.IntN(999)
	c := corev1.Container{
		Name: fmt.Sprintf("%s-%d", app, i), Image: fmt.Sprintf("registry.example.com/%s/%s:v%d.%d.%d", p.pick(), app,
			p.rnd.IntN(9), p.rnd.IntN(30), p.rnd.IntN(99)),
		ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: "File",
		Ports:                    []corev1.ContainerPort{{Name: "http", ContainerPort: int32(port), Protocol: "TCP"}},
		Args: []string{
			"--listen=:" + fmt.Sprint(port), "--" + p.pick() + "=" + p.word(8),
			"--log-level=info",
		},
	}
	for range 4 + p.rnd.IntN(14) {
		name := strings.ToUpper(p.pick() + "_" + p.pick())
		if p.rnd.IntN(4) == 0 {
			c.Env = append(c.Env, corev1.EnvVar{
				Name: name,
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: app + "-" + p.pick()}, Key: p.pick(),
				}},
			})
			continue
		}
		c.Env = append(c.Env, corev1.EnvVar{
			Name:  name,
			Value: "https://" + p.pick() + "." + p.pick() + ".svc:" + fmt.Sprint(p.rnd.IntN(9999)),
		})
	}
	cpu, mem := resource.MustParse(fmt.Sprintf("%dm", 50+10*p.rnd.IntN(90))),
		resource.MustParse(fmt.Sprintf("%dMi", 64+32*p.rnd.IntN(60)))
	c.Resources = corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"memory": mem}, Requests: corev1.ResourceList{"cpu": cpu, "memory": mem},
	}
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/" + p.pick(), Port: intstr.FromString("http"), Scheme: "HTTP"},
	}, PeriodSeconds: int32(5 + p.rnd.IntN(20)), TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3}
	c.LivenessProbe, c.ReadinessProbe = probe, probe
	for _, v := range volumes[:len(volumes)-1] {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: "/etc/" + v.Name, ReadOnly: true})
	}
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
	return c
}

const letters = "bcdfghjklmnpqrstvwxz2456789"

func (p *Pods) word(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[p.rnd.IntN(len(letters))]
	}
	return string(b)
}

func (p *Pods) hex(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[p.rnd.IntN(16)]
	}
	return string(b)
}

func (p *Pods) uid() types.UID {
	h := p.hex(32)
	return types.UID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// digest is a stable digest of an image, the same for all of its containers.
func digest(image string) string {
	var h uint64 = 14695981039346656037
	for _, c := range image {
		h = (h ^ uint64(c)) * 1099511628211
	}
	r := rand.New(rand.NewPCG(h, 7))
	return fmt.Sprintf("%016x%016x%016x%016x", r.Uint64(), r.Uint64(), r.Uint64(), r.Uint64())
}
