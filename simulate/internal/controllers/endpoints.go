package controllers

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fairlead-io/fairlead/internal/simnode"
)

const slicesManager = "endpointslice-controller.k8s.io"

// publishEndpoints is the controller of EndpointSlices. It keeps one slice for each Service with a selector.
func publishEndpoints(w *world, o *object) decision {
	service := as[corev1.Service](o)
	if o.isDeleted || len(service.Spec.Selector) == 0 || service.Spec.Type == corev1.ServiceTypeExternalName {
		return decision{}
	}
	next := slice(w, o, service)
	for _, s := range w.dependents(o.uid) {
		if s.resource != slicesOfNets || s.u.GetLabels()[discoveryv1.LabelManagedBy] != slicesManager {
			continue
		}
		old := as[discoveryv1.EndpointSlice](s)
		if s.isDeleted {
			continue
		}
		if apiequality.Semantic.DeepEqual(old.Endpoints, next.Endpoints) && maps.Equal(old.Labels, next.Labels) &&
			apiequality.Semantic.DeepEqual(old.Ports, next.Ports) {
			return decision{}
		}
		changed := old.DeepCopy()
		changed.Labels, changed.Endpoints, changed.Ports = next.Labels, next.Endpoints, next.Ports
		return send(update(manager, s, "", changed))
	}
	return send(create(manager, "endpointslices", o.namespace, next))
}

func slice(w *world, o *object, service *corev1.Service) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.namespace, GenerateName: o.name + "-", Labels: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{
				*controllerRef(o, metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}),
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
	}
	maps.Copy(out.Labels, service.Labels)
	if service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone {
		out.Labels[corev1.IsHeadlessService] = ""
	}
	out.Labels[discoveryv1.LabelServiceName], out.Labels[discoveryv1.LabelManagedBy] = service.Name, slicesManager
	selector := labels.SelectorFromSet(service.Spec.Selector)
	for _, p := range w.all(pods, o.namespace) {
		pod := as[corev1.Pod](p)
		if !selector.Matches(labels.Set(pod.Labels)) || simnode.IsFinished(pod) || pod.Status.PodIP == "" {
			continue
		}
		if out.Ports == nil {
			out.Ports = portsOf(service, pod)
		}
		serving := isReady(pod)
		ready := service.Spec.PublishNotReadyAddresses || serving && !p.isDeleted
		e := discoveryv1.Endpoint{
			Addresses:  []string{pod.Status.PodIP},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &p.isDeleted},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: p.namespace, Name: p.name, UID: p.uid},
			NodeName:   &pod.Spec.NodeName,
		}
		if pod.Spec.Hostname != "" && pod.Spec.Subdomain == service.Name {
			e.Hostname = &pod.Spec.Hostname
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

// portsOf returns the ports of a Service in a pod. A named port that the pod does not have is left out.
func portsOf(service *corev1.Service, pod *corev1.Pod) []discoveryv1.EndpointPort {
	ports := []discoveryv1.EndpointPort{}
	for _, p := range service.Spec.Ports {
		number := p.TargetPort.IntVal
		if p.TargetPort.Type == intstr.String {
			number = namedPort(pod, p.TargetPort.StrVal, p.Protocol)
		} else if number == 0 {
			number = p.Port
		}
		if number == 0 {
			continue
		}
		protocol := cmp.Or(p.Protocol, corev1.ProtocolTCP)
		ports = append(ports, discoveryv1.EndpointPort{
			Name: &p.Name, Port: &number, Protocol: &protocol, AppProtocol: p.AppProtocol,
		})
	}
	return ports
}

func namedPort(pod *corev1.Pod, name string, protocol corev1.Protocol) int32 {
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name == name && cmp.Or(p.Protocol, corev1.ProtocolTCP) == cmp.Or(protocol, corev1.ProtocolTCP) {
				return p.ContainerPort
			}
		}
	}
	return 0
}
